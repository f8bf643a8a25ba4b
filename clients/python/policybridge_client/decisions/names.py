"""Names and paths as single words in the store and in the log of sites, without loss.

To LLVM a name is any bytes except NUL. Here it is a `str` with surrogates for bytes that are not UTF-8
(``surrogateescape``), which encodes to the same bytes again.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

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
