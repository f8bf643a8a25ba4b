"""The recorder of the ledger: collects on the loop thread, hands over to the writer's."""

from collections.abc import Callable, Sequence
from time import time
from typing import Final

from policybridge_serdes import Layout, Outcome, Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine import recorder as seam
from policybridge_server.ledger.contract import Store
from policybridge_server.ledger.records import Begun, Ended, Kept, Lost, Reported, Segment
from policybridge_server.ledger.writer import Writer

_DECISIONS: Final = 256
"""In a segment at most: enough for a compressor to find what repeats, and few that only wait."""

_BYTES: Final = 1 << 18
"""Of observations in a segment, about."""


class LedgerRecorder:
    """Records all sessions; see `Recorder`.

    Args:
        store: where they go; it is closed with the recorder.

    """

    def __init__(self, store: Store) -> None:
        self._writer = Writer(store)
        self._live: dict[str, LedgerRecording] = {}

    def start(self, post: Callable[..., object]) -> None:
        """Begin to write; ``post`` hands a call over to the loop thread, like ``loop.call_soon_threadsafe``."""
        self._writer.start(post, self.hand_over)

    def opened(self, session: SessionView) -> "LedgerRecording":
        """Begin the record of a session."""
        return LedgerRecording(session, self._writer, self._live)

    def report(self, session_id: str, outcome: Outcome | None, reported: seam.Reported) -> None:
        """Keep an outcome, and what its session has decided so far."""
        live = self._live.get(session_id)
        if live is not None:
            live.hand_over()
        self._writer.put_urgent(Reported(session_id, outcome, time()), reported)

    def hand_over(self) -> None:
        """Give the writer what all live sessions have decided so far."""
        for recording in self._live.values():
            recording.hand_over()

    def close(self) -> None:
        """Write what there is, and close the store; after the loop's end."""
        for recording in list(self._live.values()):
            recording.closed()
        self._writer.close()


class LedgerRecording:
    """The record of one session; see `Recording`. Made by `LedgerRecorder.opened`."""

    def __init__(self, session: SessionView, writer: Writer, live: dict[str, "LedgerRecording"]) -> None:
        self._session = session
        self._writer = writer
        self._live = live
        self._signature: Signature | None = None
        self._context = session.context
        self._step = 0
        self._most = _DECISIONS
        self._waiting: list[Kept] = []

    def bound(self, signature: Signature) -> None:
        """Take the signature; the first one begins the record."""
        if self._signature is None:
            self._live[self._session.id] = self
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
        if self._live.pop(self._session.id, None) is not None:
            self.hand_over()
            self._writer.put(Ended(self._session.id, time()))

    def hand_over(self) -> None:
        """Give the writer what was decided so far; a ledger that cannot keep up loses it, and counts that."""
        if not self._waiting or self._signature is None:
            return
        decisions, self._waiting = self._waiting, []
        first, self._step = self._step + 1, self._step + len(decisions)
        size = _size(decisions, self._signature.features)
        if self._writer.has_room(size):
            self._writer.put(Segment(self._session.id, first, self._signature, self._context, decisions, size))
        else:
            self._writer.put(Lost(self._session.id, len(decisions)))


def _size(decisions: Sequence[Kept], features: Layout) -> int:
    size = len(decisions) * features.size
    for spec in features.specs:
        if not spec.fixed:
            size += sum(row[spec.name][0].nbytes for row, *_ in decisions if not isinstance(row, bytes))
    return size
