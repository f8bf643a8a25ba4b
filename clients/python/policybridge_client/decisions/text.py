"""The words of a store and of a log of sites: names, levels and kinds; and reading such a file.

Names and paths are single words there, without loss. To LLVM a name is any bytes except NUL. Here it is a `str` with
surrogates for bytes that are not UTF-8 (``surrogateescape``), which encodes to the same bytes again.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from policybridge_core.errors import InvalidError, NotFoundError, TooLargeError

Level = Literal["Oz", "Os", "O2"]
"""``minsize``, ``optsize`` or neither of them, as LLVM marks the functions of a module."""

By = Literal["site", "sequence"]
"""The kind of the keys: `site_key`, or `FeaturesKeys` if the compiler does not tell the site."""

Phase = Literal["compile", "link"]
"""Whether a compiler optimises the module, or a linker."""

LEVELS: Final[tuple[Level, ...]] = ("Oz", "Os", "O2")
KINDS: Final[tuple[By, ...]] = ("site", "sequence")

_LIMIT: Final = 1 << 28
"""Bytes that a store or a log of sites may have: a hundred times that of 20,000 decisions."""

_HIDDEN: Final = re.compile(rb"[\x00-\x20\x7f%]")


def to_text(raw: bytes) -> str:
    """Return LLVM's bytes as text."""
    return raw.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Return a text as LLVM's bytes."""
    return text.encode("utf-8", "surrogateescape")


def quoted(text: str) -> bytes:
    """Return a name as one word: bytes up to 0x20, 0x7f and ``%`` are percent-encoded."""
    return _HIDDEN.sub(_encoded, to_bytes(text))


def _encoded(byte: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(byte[0])


def unquoted(word: bytes) -> str:
    """Return the name behind a word: the inverse of `quoted`."""
    return to_text(unquote_to_bytes(word) if b"%" in word else word)


def checked_level(word: str) -> Level:
    """Return ``word`` as a level.

    Raises:
        InvalidError: ``word`` is another word.

    """
    for level in LEVELS:
        if word == level:
            return level
    raise InvalidError(f"a level is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {word!r}")


def checked_kind(word: str) -> By:
    """Return ``word`` as a kind of keys.

    Raises:
        InvalidError: ``word`` is another word.

    """
    for kind in KINDS:
        if word == kind:
            return kind
    raise InvalidError(f"decisions are by {' or '.join(KINDS)}, not by {word!r}")


def read_limited(path: Path | str, what: str) -> bytes:
    """Read a regular file of at most 256 MiB; raise as `read_store`. ``what`` stands for the file in messages."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidError(f"{path} is not a regular file; a {what} is one")
            data = file.read(_LIMIT + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no {what} at {path}") from error
    except (OSError, ValueError) as error:
        raise InvalidError(f"the {what} cannot be read: {error}") from error
    if len(data) > _LIMIT:
        raise TooLargeError(f"{path} has more than {_LIMIT >> 20} MiB, too much for a {what}")
    return data


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)
