"""Symbol names, which may be any bytes."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def as_utf8(name: str) -> str:
    """Give a name with other bytes than UTF-8 spelt out, so that it can be written down as UTF-8."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def all_as_utf8(names: Iterable[str]) -> list[str]:
    """Give names in UTF-8; see `as_utf8`."""
    return [*map(as_utf8, names)]


def keyed_by_utf8(values: Mapping[str, T]) -> Mapping[str, T]:
    """Give values whose keys are names in UTF-8; see `as_utf8`."""
    return {as_utf8(name): value for name, value in values.items()}
