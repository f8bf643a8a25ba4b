"""The progress of searches, in a file beside the store. An interrupted search continues from it.

It is a cache: without it, a search begins again from the store's decisions.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.result import as_utf8
from policybridge_train.tuning.ranking import FEATURES, Label
from policybridge_train.tuning.search import Search

_FORMAT: Final = 1
_PIECE: Final = 1000
"""Labels that are read at a time."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS searches (module TEXT PRIMARY KEY, search BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS labels (features BLOB NOT NULL, credit REAL NOT NULL);
"""


class Progress:
    """Searches by module and LLVM, and the labels of all. Usable from any thread; each call is on the disk at its end.

    Raises:
        InvalidError: the file is none of ours, and is left as it is; or it cannot be read or written.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._decoder = msgspec.msgpack.Decoder(Search)
        with self._telling():
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with self._telling():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        known = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version != _FORMAT and (version or known):
            raise InvalidError(f"{self._path} is not the progress of a search, or of another version; move it away")
        self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA user_version={_FORMAT}; {_TABLES}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            what = f"the progress of the search in {self._path} cannot be read or written: {error}"
            raise InvalidError(f"{what}; is there space on the disk? If it is damaged, move it away") from error

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def search(self, module: str) -> Search | None:
        """Give the search of a module; ``None`` if there is none, or one that an older version wrote otherwise."""
        with self._lock, self._telling():
            query = "SELECT search FROM searches WHERE module = ?"
            row = self._database.execute(query, (as_utf8(module),)).fetchone()
        with suppress(msgspec.DecodeError):
            return self._decoder.decode(row[0]) if row else None
        return None

    def keep(self, module: str, search: Search) -> None:
        """Write down the search of a module."""
        data = msgspec.msgpack.encode(search)
        with self._lock, self._telling():
            self._database.execute("INSERT OR REPLACE INTO searches VALUES (?, ?)", (as_utf8(module), data))

    def add_labels(self, labels: Iterable[Label]) -> None:
        """Add tried flips."""
        rows = [(msgspec.msgpack.encode(features), credit) for features, credit in labels]
        with self._lock, self._telling(), self._database:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO labels VALUES (?, ?)", rows)

    def labels(self) -> Iterator[Label]:
        """Give all labels, in pieces: they may be too many for the memory."""
        row = 0
        # Do not hold the lock while the caller has a label: an abandoned generator would keep it from `close`.
        while rows := self._labels_after(row):
            for _, data, credit in rows:
                features = msgspec.msgpack.decode(data, type=list[float])
                # Those of an older version had others.
                if len(features) == len(FEATURES):
                    yield features, credit
            row = rows[-1][0]

    def _labels_after(self, row: int) -> list[tuple[int, bytes, float]]:
        query = "SELECT rowid, features, credit FROM labels WHERE rowid > ? ORDER BY rowid LIMIT ?"
        with self._lock, self._telling():
            return self._database.execute(query, (row, _PIECE)).fetchall()
