"""The record of a training run, in a file from which a killed run continues."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.compiling.result import as_utf8

_FORMAT: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pieces (
  iteration INTEGER NOT NULL, name TEXT NOT NULL, compiles INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (iteration, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS iterations (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""


class Iteration(msgspec.Struct, frozen=True):
    """A version that was published and validated.

    Attributes:
        number: counted from 0, which is the compiler's own decisions.
        version: in the run's repository.
        digest: of the version.
        compiles: of all cases since the run began.
        seconds: of wall time since the run began.
        costs: of each validation case, the totals by name: bytes of ``text``, ``exec``.
        settings: this version's settings, by name.

    """

    number: int
    version: int
    digest: str
    compiles: int
    seconds: float
    costs: Mapping[str, Mapping[str, float]]
    settings: Mapping[str, float] = {}


class Record:
    """The file of a run. Usable from any thread; each call is on the disk at its end.

    Args:
        path: the file.
        made_by: the run's command and cases; another command cannot continue it.

    Raises:
        InvalidError: the file is none of ours, or cannot be read or written.
        PreconditionError: it is of a run that was started otherwise; the message says how.

    """

    def __init__(self, path: Path, made_by: Mapping[str, str]) -> None:
        self._path = path
        self._lock = Lock()
        self._held = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._open(made_by)
        except BaseException:
            os.close(self._held)
            raise

    def _open(self, made_by: Mapping[str, str]) -> None:
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PreconditionError(f"another run works in {self._path.parent}; wait until it has ended") from error
        with self._telling():
            self._database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            self._prepare(made_by)

    def _prepare(self, made_by: Mapping[str, str]) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        known = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version != _FORMAT and (version or known):
            raise InvalidError(f"{self._path} is not the record of a training run, or of another version; move it away")
        self._database.executescript(
            f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA user_version={_FORMAT}; {_TABLES}"
        )
        before = dict(self._database.execute("SELECT name, value FROM facts").fetchall())
        for name in sorted(made_by) if before else ():
            if before.get(name) != made_by[name]:
                raise PreconditionError(_otherwise(self._path.parent, name, before.get(name), made_by[name]))
        self._database.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", made_by.items())

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._database.close()
        os.close(self._held)

    def keep(self, iteration: int, name: str, compiles: int, data: bytes) -> None:
        """Keep a piece of an iteration: the labels of one case."""
        with self._lock, self._telling():
            self._database.execute(
                "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", (iteration, as_utf8(name), compiles, data)
            )

    def has(self, iteration: int, name: str) -> bool:
        """Tell whether an iteration has a piece."""
        with self._lock, self._telling():
            row = self._database.execute(
                "SELECT 1 FROM pieces WHERE iteration = ? AND name = ?", (iteration, as_utf8(name))
            ).fetchone()
            return row is not None

    def piece(self, iteration: int, name: str) -> bytes:
        """Give a piece of an iteration.

        Raises:
            InvalidError: it has none of that name.

        """
        with self._lock, self._telling():
            row = self._database.execute(
                "SELECT data FROM pieces WHERE iteration = ? AND name = ?", (iteration, as_utf8(name))
            ).fetchone()
        if row is None:
            raise InvalidError(f"the record of the run in {self._path} has no {name} of iteration {iteration}")
        data: bytes = row[0]
        return data

    def pieces(self, until: int) -> Iterator[tuple[int, str, bytes]]:
        """Give the pieces of all iterations before ``until``, in an order that is always the same."""
        with self._lock, self._telling():
            rows = self._database.execute(
                "SELECT iteration, name, data FROM pieces WHERE iteration < ? ORDER BY iteration, name", (until,)
            ).fetchall()
        yield from rows

    def compiles(self) -> int:
        """Give the number of compiles of all pieces."""
        with self._lock, self._telling():
            count: int = self._database.execute("SELECT coalesce(sum(compiles), 0) FROM pieces").fetchone()[0]
            return count

    def finish(self, iteration: Iteration) -> None:
        """Keep an iteration as done."""
        with self._lock, self._telling():
            data = msgspec.msgpack.encode(iteration)
            self._database.execute("INSERT OR REPLACE INTO iterations VALUES (?, ?)", (iteration.number, data))

    def iterations(self) -> list[Iteration]:
        """Give the iterations that are done, in their order."""
        with self._lock, self._telling():
            rows = self._database.execute("SELECT data FROM iterations ORDER BY number").fetchall()
        return [msgspec.msgpack.decode(row[0], type=Iteration) for row in rows]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise InvalidError(f"the record of the run in {self._path} cannot be read or written: {error}") from error


def _otherwise(folder: Path, name: str, before: str | None, now: str) -> str:
    """Say that a run was started otherwise, and how it goes on."""
    if name == "settings" and before is not None:
        # Each version writes all settings that it knows, so that no command of this one gives those of the run.
        known, given = (msgspec.json.decode(each, type=dict[str, object]) for each in (before, now))
        changed = ", ".join(sorted(known.keys() ^ given.keys()))
        if changed:
            return (
                f"{folder} is a run of a PolicyBridge of another version, whose settings differ from this one's by "
                f"{changed}; go on with that version, or give another --output"
            )
    was = "nothing" if before is None else before
    return f"{folder} is a run with {name} = {was}, and not {now}; go on with that, or give another --output"
