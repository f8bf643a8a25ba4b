"""Several ledgers that are read as one."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from policybridge_server.ledger.contract import Reader
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.trajectory import DecisionBatch


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
