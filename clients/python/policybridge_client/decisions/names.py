"""Names and paths as the store and the log of sites write them: one word each, without loss.

A name is any bytes but NUL to LLVM. Here it is a `str` in which bytes that are no UTF-8 stand as surrogates
(``surrogateescape``), so that it goes back to the same bytes.
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


def _encoded(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(found[0])


def unquoted(word: bytes) -> str:
    """Return the name that a word stands for."""
    return to_text(unquote_to_bytes(word) if b"%" in word else word)
