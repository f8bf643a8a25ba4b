"""Reading a ledger: sessions, trajectories and batches for trainers, while a server writes it or not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from policybridge_core.errors import NotFoundError
from policybridge_server.ledger.contract import load_ledger
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.trajectory import DecisionBatch, Trajectory, joined


class LedgerReader(AbstractContextManager["LedgerReader"]):
    """Reads a ledger; any number of readers may do so, also while a server writes. For one thread.

    Every read is short and sees everything that was written before it. Sessions that are dropped meanwhile are skipped.

    Args:
        path: the file.
        kind: the name of the kind of ledger, as ``--ledger-store`` of the server takes it.

    Raises:
        NotFoundError: there is no such kind.
        UnavailableError: from any method, the ledger cannot be read.
        InvalidError: from any method, the ledger is damaged.

    """

    def __init__(self, path: Path | str, kind: str = "sqlite") -> None:
        self._path = Path(path)
        self._reader = load_ledger(kind).open_reader(self._path)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def sessions(self, query: Query | None = None) -> Iterator[SessionRecord]:
        """Give the sessions that ``query`` describes, without one all of them, the oldest first."""
        return self._reader.sessions(query or Query())

    def session(self, session_id: str) -> SessionRecord:
        """Give the session whose id is, or begins with, ``session_id``.

        Raises:
            NotFoundError: there is none, or more than one.

        """
        found = list(self.sessions(Query(session=session_id)))
        exact = [session for session in found if session.id == session_id] or found
        if len(exact) != 1:
            raise NotFoundError(f"{len(exact) or 'no'} sessions of {self._path} begin with {session_id!r}")
        return exact[0]

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions as they were written: some hundreds at a time."""
        return self._reader.segments(session)

    def trajectory(self, session: SessionRecord) -> Trajectory:
        """Give a session's decisions, all at once."""
        return Trajectory(session, list(_merged(self.segments(session))))

    def trajectories(self, query: Query | None = None) -> Iterator[Trajectory]:
        """Give the trajectories of the sessions that ``query`` describes, one after another, the oldest first."""
        return (self.trajectory(session) for session in self.sessions(query))

    def batches(self, query: Query | None = None, size: int = 4096) -> Iterator[DecisionBatch]:
        """Give the decisions of the sessions that ``query`` describes, at most ``size`` in a batch.

        A batch has one signature; sessions follow each other, the oldest first. Memory holds about one batch.
        """
        pieces = (piece for session in self.sessions(query) for piece in self.segments(session))
        for batch in _merged(pieces, size):
            yield from batch.split(size)


def _merged(pieces: Iterator[DecisionBatch], size: int | None = None) -> Iterator[DecisionBatch]:
    """Join neighbours of one signature, until there are ``size`` decisions (``None``: all of them)."""
    parts: list[DecisionBatch] = []
    for piece in pieces:
        full = size is not None and sum(map(len, parts)) >= size
        if parts and (full or piece.signature != parts[0].signature):
            yield joined(parts)
            parts = []
        parts.append(piece)
    if parts:
        yield joined(parts)
