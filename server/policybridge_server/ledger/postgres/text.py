"""Escapes of text for PostgreSQL, which refuses the character NUL; clients' names may have it."""

from typing import Any, Final

from psycopg import Connection
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrBinaryDumper, StrDumperUnknown

_ESCAPE: Final = "\x01"
_ESCAPES: Final = str.maketrans({"\0": f"{_ESCAPE}0", _ESCAPE: f"{_ESCAPE}1"})


def escaped(text: str) -> str:
    """Return the escaped ``text`` for the tables: itself, unless it has one of two control characters."""
    return text.translate(_ESCAPES) if "\0" in text or _ESCAPE in text else text


def unescaped(text: str) -> str:
    """Return the text of the escaped ``text`` in the tables."""
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE) if _ESCAPE in text else text


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _BinaryDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


def adapt_text(connection: Connection[Any]) -> None:
    """Escape all text on a connection on its way there, and unescape it on its way back."""
    connection.adapters.register_dumper(str, _BinaryDumper)
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_loader("text", _TextLoader)
