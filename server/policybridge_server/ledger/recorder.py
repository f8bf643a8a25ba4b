"""The recorder of the ledger: collects decisions on the loop thread, and hands them to the writer's thread."""

from collections.abc import Callable, Sequence
from time import time
from typing import Final

from policybridge_serdes import Layout, Outcome, Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.recorder import Acknowledge
from policybridge_server.ledger.contract import Store
from policybridge_server.ledger.records import Begun, DecisionRecord, Ended, Lost, Reported, Segment
from policybridge_server.ledger.writer import Writer

_DECISIONS: Final = 256
"""In a segment, at most: enough for the compressor to find repetitions, few enough to be written soon."""

_BYTES: Final = 1 << 18
"""Of observations in a segment, about."""


class LedgerRecorder:
    """Records all sessions; implements `Recorder`.

    Args:
        store: writes them; it is closed with the recorder.

    """

    def __init__(self, store: Store) -> None:
        self._writer = Writer(store)
        self._open: dict[str, LedgerRecording] = {}

    def start(self, post: Callable[..., object]) -> None:
        """Begin to write; ``post`` makes a call on the loop thread, like ``loop.call_soon_threadsafe``."""
        self._writer.start(post, self.hand_over)

    def opened(self, session: SessionView) -> "LedgerRecording":
        """Make the record of a session."""
        return LedgerRecording(session, self._writer, self._open)

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge) -> None:
        """Record an outcome, and the decisions of its session so far."""
        recording = self._open.get(session_id)
        if recording is not None:
            recording.hand_over()
        self._writer.put_urgent(Reported(session_id, outcome, time()), acknowledge)

    def hand_over(self) -> None:
        """Give the writer the decisions of all open sessions so far."""
        for recording in self._open.values():
            recording.hand_over()

    def close(self) -> None:
        """Write everything, and close the store. Call this after the loop's end."""
        for recording in list(self._open.values()):
            recording.closed()
        self._writer.close()


class LedgerRecording:
    """The record of one session; implements `Recording`. Made by `LedgerRecorder.opened`."""

    def __init__(self, session: SessionView, writer: Writer, open_sessions: dict[str, "LedgerRecording"]) -> None:
        self._session = session
        self._writer = writer
        self._open = open_sessions
        self._signature: Signature | None = None
        self._context = session.context
        self._step = 0
        self._most = _DECISIONS
        self._waiting: list[DecisionRecord] = []

    def bound(self, signature: Signature) -> None:
        """Take the signature; the first one begins the record."""
        if self._signature is None:
            self._open[self._session.id] = self
            self._writer.put(Begun(self._session, time()))
        self.hand_over()
        self._signature = signature
        self._most = max(1, min(_DECISIONS, _BYTES // max(signature.features.size, 1)))

    def decided(self, row: Row, advice: Values, log_probability: float | None, nanoseconds: int) -> None:
        """Take a decision."""
        waiting, context = self._waiting, self._session.context
        if context != self._context:
            self.hand_over()
            waiting, self._context = self._waiting, context
        waiting.append((row, advice, log_probability, nanoseconds))
        if len(waiting) >= self._most:
            self.hand_over()

    def closed(self) -> None:
        """Take the end."""
        if self._open.pop(self._session.id, None) is not None:
            self.hand_over()
            self._writer.put(Ended(self._session.id, time()))

    def hand_over(self) -> None:
        """Give the writer the decisions so far; if the ledger cannot keep up, they are dropped and counted as lost."""
        if not self._waiting or self._signature is None:
            return
        decisions, self._waiting = self._waiting, []
        first, self._step = self._step + 1, self._step + len(decisions)
        size = _size(decisions, self._signature.features)
        if self._writer.has_room(size):
            self._writer.put(Segment(self._session.id, first, self._signature, self._context, decisions, size))
        else:
            self._writer.put(Lost(self._session.id, len(decisions)))


def _size(decisions: Sequence[DecisionRecord], features: Layout) -> int:
    size = len(decisions) * features.size
    for spec in features.specs:
        if not spec.fixed:
            size += sum(row[spec.name][0].nbytes for row, *_ in decisions if not isinstance(row, bytes))
    return size
