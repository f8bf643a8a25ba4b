"""Reading a ledger: sessions, trajectories and batches for trainers, while a server writes it or not."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path

from policybridge_core.errors import NotFoundError
from policybridge_server.ledger.contract import DroppedError, Reader, load_ledger
from policybridge_server.ledger.place import parse_place
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.trajectory import DecisionBatch, Trajectory, joined


class LedgerReader(AbstractContextManager["LedgerReader"]):
    """Reads a ledger; any number of readers may do so, also while a server writes. For one thread.

    Every read is short and sees all earlier writes. A session is read whole or not at all: reading many sessions
    skips those that a server drops meanwhile; a session dropped after some of its
    decisions were returned, which happens only to very large ones, is an error.

    Args:
        places: the ledger's place: a file, or the URL of a database; or several, read as one. Their sessions are
            in the order of their opening, by the clocks of their machines.
        kind: the name of the kind of ledger, as in the server's ``--ledger-store``; ``None``: by the
            place.

    Raises:
        InvalidError: a URL cannot be read.
        NotFoundError: there is no such kind.
        UnavailableError: from any method, the ledger cannot be read.
        InvalidError: from any method, the ledger is damaged.
        DroppedError: while decisions are read, their session was dropped; a `NotFoundError`.

    """

    def __init__(self, places: Path | str | Sequence[Path | str], kind: str | None = None) -> None:
        given = [places] if isinstance(places, Path | str) else places
        self._places = [parse_place(each) for each in given]
        self._reader = self._open(kind)

    def _open(self, kind: str | None) -> Reader:
        with ExitStack() as stack:
            readers = [stack.enter_context(closing(load_ledger(each, kind).open_reader(each))) for each in self._places]
            stack.pop_all()
        return readers[0] if len(readers) == 1 else JoinedReader(readers)

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
            NotFoundError: there is no such session, or more than one.

        """
        sessions = list(self.sessions(Query(session=session_id)))
        exact = [session for session in sessions if session.id == session_id] or sessions
        if len(exact) != 1:
            raise NotFoundError(
                f"{len(exact) or 'no'} sessions of {', '.join(map(str, self._places))} begin with {session_id!r}"
            )
        return exact[0]

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions as they were written: some hundreds at a time."""
        return self._reader.segments(session)

    def context_outcomes(self, session: SessionRecord) -> Mapping[str, Mapping[str, float]]:
        """Return a session's outcomes by context (function) and name; the latest number of each.

        Raises:
            DroppedError: the session was dropped.

        """
        return self._reader.context_outcomes(session)

    def trajectory(self, session: SessionRecord) -> Trajectory:
        """Give a session's decisions, all at once."""
        return Trajectory(session, list(_merged(self.segments(session))))

    def trajectories(self, query: Query | None = None) -> Iterator[Trajectory]:
        """Give the trajectories of the sessions that ``query`` describes, one after another, the oldest first."""
        for session in self.sessions(query):
            try:
                trajectory = self.trajectory(session)
            except DroppedError:
                continue
            yield trajectory

    def batches(self, query: Query | None = None, size: int = 4096) -> Iterator[DecisionBatch]:
        """Give the decisions of the sessions that ``query`` describes, at most ``size`` in a batch.

        A batch has one signature; sessions follow each other, the oldest first. Memory holds about one batch.
        """
        for batch in _merged(self._pieces(query), size):
            yield from batch.split(size)

    def _pieces(self, query: Query | None) -> Iterator[DecisionBatch]:
        kind = None if query is None else query.kind
        for session in self.sessions(query):
            given = False
            try:
                for piece in self.segments(session):
                    if kind is None or piece.signature.advice.name == kind:
                        yield piece
                        given = True
            except DroppedError:
                if given:
                    raise


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


class JoinedReader:
    """Implements `Reader`. Sessions get numbers that identify their ledger.

    Args:
        readers: of the ledgers; they are closed with this one.

    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers

    def close(self) -> None:
        """Close the files."""
        with ExitStack() as stack:
            for reader in self._readers:
                stack.enter_context(closing(reader))

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions of all ledgers, in the order of their opening."""
        each = [self._numbered(index, reader, query) for index, reader in enumerate(self._readers)]
        return heapq.merge(*each, key=lambda session: session.opened)

    def _numbered(self, index: int, reader: Reader, query: Query) -> Iterator[SessionRecord]:
        for session in reader.sessions(query):
            yield replace(session, number=session.number * len(self._readers) + index)

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions."""
        reader, own = self._found(session)
        for batch in reader.segments(own):
            yield replace(batch, sessions=[session])

    def context_outcomes(self, session: SessionRecord) -> Mapping[str, Mapping[str, float]]:
        """Give the numbers by context."""
        reader, own = self._found(session)
        return reader.context_outcomes(own)

    def _found(self, session: SessionRecord) -> tuple[Reader, SessionRecord]:
        number, index = divmod(session.number, len(self._readers))
        return self._readers[index], replace(session, number=number)
