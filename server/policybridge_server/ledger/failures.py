"""A store's errors in words, as ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_server.ledger.place import Place

_OWN_ERROR: Final = 0xFF
"""The low byte of SQLite's extended error codes is the plain code."""

_WORDS: Final = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_BUSY: "another program holds it locked",
    sqlite3.SQLITE_READONLY: "it is on a read-only disk, or its owner does not let this user write it",
    sqlite3.SQLITE_IOERR: "its disk is full, or cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
}

_DAMAGED: Final = {
    sqlite3.SQLITE_CORRUPT: "parts of the file were overwritten or are missing",
    sqlite3.SQLITE_NOTADB: "it is no SQLite file",
}


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """Raise errors about the ledger at ``path`` as ours.

    Raises:
        InvalidError: the file is damaged.
        UnavailableError: it cannot be used now.

    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        # Errors of the Python module itself carry no code.
        code = getattr(error, "sqlite_errorcode", 0) & _OWN_ERROR
        if code in _DAMAGED:
            raise InvalidError(
                f"the ledger {path} is damaged: {_DAMAGED[code]} ({error}); put back a copy of it, or name another file"
            ) from error
        words = _WORDS.get(code)
        reason = f"{words} ({error})" if words else error
        raise UnavailableError(f"the ledger {path} cannot be used: {reason}") from error


@contextmanager
def undamaged(place: Place) -> Iterator[None]:
    """Raise errors of converting the ledger's rows as `InvalidError`: the rows are damaged."""
    try:
        yield
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, MemoryError, msgspec.MsgspecError) as error:
        raise InvalidError(f"the ledger {place} is damaged: {error!r}") from error


def refusal(session_id: str, lost: int | None) -> PolicyBridgeError | None:
    """Say why a session's decisions cannot be acknowledged; ``None``: they can.

    Args:
        session_id: the session's.
        lost: number of its lost decisions; ``None``: there is no such session.

    """
    if lost is None:
        return NotFoundError(
            f"the ledger holds no session {session_id!r}: it was never recorded, or it was dropped to keep the "
            "ledger within its bounds"
        )
    if lost:
        return TooLargeError(f"the ledger could not keep up: {lost} decisions of the session are lost")
    return None
