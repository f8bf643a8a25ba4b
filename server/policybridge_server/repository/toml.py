"""TOML from publishers and leaders: its size and depth are checked before it is parsed.

The parser of the standard library takes time and memory that grow with the square of a key's depth.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from policybridge_core.errors import PreconditionError
from policybridge_core.fields import cure_of

LARGEST: Final = 64 << 10
"""Bytes of a ``policy.toml``."""

_DEEPEST: Final = 16
"""Tables and arrays within each other, and parts of one key."""

_LEFT_OUT: Final = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}|'
    rb"'''(?:[^']|'(?!''))*+'{0,5}|"
    rb'"(?:[^"\\\n]|\\.)*+"?|'
    rb"'[^'\n]*+'?|"
    rb"#[^\n]*+",
    re.DOTALL,
)
"""Strings and comments, which may hold dots and brackets. A string without an end is a fault behind which the parser
reads nothing. No byte is looked at more than a few times, because the interpreter is held meanwhile."""

_DEEP_KEY: Final = re.compile(rb"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){%d}" % _DEEPEST)
_BRACKETS: Final = re.compile(rb"[][{}]")

_Parsed = TypeVar("_Parsed")


def parse_toml(text: bytes, where: str, kind: type[_Parsed], largest: int = LARGEST) -> _Parsed:
    """Read the ``text`` of a ``policy.toml`` (a `PolicyConfig`) or of an ``aliases.toml`` (alias → version number).

    It may take some tenths of a second: call it in a thread.

    Raises:
        PreconditionError: it is not of this ``kind``, is larger than ``largest`` bytes, or is nested more than 16 deep;
            the message begins with ``where``.

    """
    check_size(len(text), where, largest)
    depth = max(_depths(text), default=0)
    if depth > _DEEPEST:
        raise PreconditionError(f"{where}: values are nested too deeply in each other; at most {_DEEPEST} deep")
    try:
        return msgspec.toml.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        cure = cure_of(error, kind) if isinstance(error, msgspec.ValidationError) else ""
        raise PreconditionError(f"{where}: {error}{cure}") from error


def check_size(size: int, where: str, largest: int = LARGEST) -> None:
    """Check the size of a text before it is copied or parsed.

    Raises:
        PreconditionError: it is larger than ``largest`` bytes.

    """
    if size > largest:
        raise PreconditionError(f"{where}: {size} bytes; at most {largest} are taken")


def _depths(text: bytes) -> Iterator[int]:
    bare = _LEFT_OUT.sub(b"_", text)
    if _DEEP_KEY.search(bare):
        yield _DEEPEST + 1
    depth = 0
    for bracket in _BRACKETS.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        yield depth
