"""The recorder of the ledger: collects decisions on the loop thread, and hands them to the writer's thread."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policybridge_core.errors import PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes import Layout, Outcome, Signature, Values
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.recorder import Acknowledge
from policybridge_server.ledger.clock import Clock, SystemClock
from policybridge_server.ledger.contract import Spooling, Store
from policybridge_server.ledger.records import (
    Begun,
    Bulk,
    BulkPart,
    DecisionRecord,
    Ended,
    Labelled,
    Lost,
    Reported,
    Resumed,
    Segment,
    Step,
)
from policybridge_server.ledger.resuming import Ready
from policybridge_server.ledger.writer import Writer
from policybridge_server.repository.rollout import RolloutStep

_LOG = logging.getLogger(__name__)

_DECISIONS: Final = 256
"""In a segment, at most: enough for the compressor to find repetitions, few enough to be written soon."""

_BYTES: Final = 1 << 18
"""Of observations in a segment, about."""

_BEHIND: Final = 16 << 20
"""Bytes that wait to be written, from which on clients that decide by themselves wait, too."""

_DECISION: Final = 300
"""Approximate bytes of Python's objects for a decision besides the observation."""

_SEGMENT: Final = 1000
"""Approximate bytes of those for a segment that a client reported, besides its parts."""


@dataclass(frozen=True)
class LedgerState:
    """How a ledger keeps up.

    Attributes:
        waiting_bytes: of memory, of records that are not written.
        written_bytes: of memory, of records that were written.
        lag: seconds since all records were written; 0: they are.
        lost: decisions that found no room.
        failing: whether it cannot be written now.
        spooled_bytes: of disk, of records that wait for a database.
        away: whether that database is away.

    """

    waiting_bytes: int
    written_bytes: int
    lag: float
    lost: int
    failing: bool
    spooled_bytes: int = 0
    away: bool = False


class LedgerRecorder:
    """Records all sessions; implements `Recorder`.

    Args:
        store: writes them; it is closed with the recorder.
        clock: gives the times of the records.

    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._writer = Writer(store)
        self._store = store
        self._clock = clock or SystemClock()
        self._open: dict[str, LedgerRecording] = {}
        self._left_out = _LeftOut()

    def start(self, post: Callable[..., object], *, by_turns: bool = False) -> None:
        """Begin to write.

        Args:
            post: makes a call on the loop thread, like `Loop.post`.
            by_turns: whether `end_turn` is called after each turn, so that the reports of a turn are written together,
                at its end.

        """
        self._writer.start(post, self.hand_over, by_turns=by_turns)

    def end_turn(self) -> None:
        """Let the writer write the reports of this turn."""
        self._writer.end_turn()

    def opened(self, session: SessionView) -> "LedgerRecording":
        """Make the record of a session."""
        return LedgerRecording(session, self._writer, self._clock, self._open, self._left_out)

    def resumed(self, session: SessionView, ready: Ready) -> "ResumedRecording":
        """Make the record of a session that goes on, and call ``ready`` when the ledger has found what it holds."""
        recording = ResumedRecording(session, self._writer, self._clock, self._open, self._left_out)
        recording.resume(ready)
        return recording

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str = "") -> None:
        """Record an outcome, and the decisions of its session so far."""
        recording = self._open.get(session_id)
        if recording is not None:
            recording.settle()
        record = Reported(session_id, outcome, self._clock.now().wall, reporter)
        if recording is not None and not recording.kept:
            acknowledge(_no_record(session_id))
        elif self._writer.has_room(record.size):
            self._writer.put_urgent(record, acknowledge)
        else:
            acknowledge(UnavailableError("the ledger cannot keep up now; report the outcome again later"))

    @property
    def state(self) -> "LedgerState":
        """How the ledger keeps up."""
        writer, store = self._writer, self._store
        spooled, away = (store.spooled_bytes, store.away) if isinstance(store, Spooling) else (0, False)
        return LedgerState(
            writer.waiting_bytes,
            writer.written_bytes,
            writer.lag,
            self._left_out.count,
            failing=writer.failing,
            spooled_bytes=spooled,
            away=away,
        )

    def step(self, step: RolloutStep, acknowledge: Acknowledge) -> None:
        """Record a step of a roll-out."""
        self._writer.put_urgent(Step(step), acknowledge)

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
    """The record of one session; implements `Recording`. Made by `LedgerRecorder.opened`.

    Attributes:
        kept: whether there is a record: a session that began while the ledger had no room has none.

    """

    def __init__(
        self,
        session: SessionView,
        writer: Writer,
        clock: Clock,
        open_sessions: dict[str, "LedgerRecording"],
        left_out: "_LeftOut",
    ) -> None:
        self.kept = True
        self._session = session
        self._writer = writer
        self._clock = clock
        self._open = open_sessions
        self._left_out = left_out
        self._signature: Signature | None = None
        self._context = session.context
        self._step = 0
        self._most = _DECISIONS
        # Of the decisions that wait, those of the server or of the client alone.
        self._waiting: list[DecisionRecord] = []
        self._parts: list[BulkPart] = []
        # The features of varying size, and the bytes that they, or the client's decisions, take there.
        self._varying: list[str] = []
        self._bytes = 0
        self._lost = 0

    def bound(self, signature: Signature) -> None:
        """Take the signature; the first one begins the record."""
        if self._signature is None:
            self._open[self._session.id] = self
            self._begin()
        self.hand_over()
        self._signature = signature
        self._most = max(1, min(_DECISIONS, _BYTES // max(signature.features.size, 1)))
        features = signature.features
        self._varying = [] if features.fixed else [spec.name for spec in features.specs if not spec.fixed]

    def labelled(self) -> None:
        """Take the session's labels, which have changed since it began."""
        if self._signature is not None and self.kept:
            self._writer.put(Labelled(self._session.id, self._session.labels))

    def _begin(self) -> None:
        record = Begun(self._session, self._clock.now().wall)
        self.kept = self._writer.has_room(record.size)
        if self.kept:
            self._writer.put(record)

    def decided(self, row: Row, advice: Values, log_probability: float | None, nanoseconds: int) -> None:
        """Take a decision."""
        waiting, context = self._waiting, self._session.context
        if context != self._context or self._parts:
            self.hand_over()
            waiting, self._context = self._waiting, context
        waiting.append((row, advice, log_probability, nanoseconds))
        if self._varying and not isinstance(row, bytes):
            self._bytes += sum(row[name][0].nbytes for name in self._varying)
        if len(waiting) >= self._most or self._bytes >= _BYTES:
            self.hand_over()

    def reported(
        self, count: int, observations: Buffer, advices: Buffer, nanoseconds: int, chances: Buffer = b""
    ) -> None:
        """Take decisions that a client made by itself, in the order that it packed them.

        Messages that follow each other become one segment, which takes less time and room than several.
        """
        context = self._session.context
        if self._waiting or context != self._context:
            self.hand_over()
            self._context = context
        whole = BulkPart(observations, advices, count, nanoseconds, chances)
        size = whole.size
        if size <= _BYTES:
            self._join(whole, size)
        else:
            for part in _parts(whole):
                self._join(part, part.size)
        if self._bytes >= _BYTES:
            self.hand_over()

    def _join(self, part: BulkPart, size: int) -> None:
        if self._bytes + size > _BYTES:
            self.hand_over()
        self._parts.append(part)
        self._bytes += size

    def keep_pace(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` at once, or if much waits to be written, when the decisions so far are or cannot be."""
        if self.kept and self._writer.waiting_bytes > _BEHIND:
            self.hand_over()
            record = Reported(self._session.id, None, self._clock.now().wall, self._session.reporter)
            self._writer.put_urgent(record, lambda _: go_on())
        else:
            go_on()

    def closed(self, acknowledge: Acknowledge | None = None) -> None:
        """Take the end."""
        if self._open.pop(self._session.id, None) is None:
            if acknowledge is not None:
                acknowledge(None)
            return
        self.settle()
        record = self._end(whole=acknowledge is not None)
        if acknowledge is None:
            if self.kept:
                self._writer.put(record)
        elif self.kept:
            self._writer.put_urgent(record, acknowledge)
        else:
            acknowledge(_no_record(self._session.id))

    def _end(self, *, whole: bool) -> Ended:  # noqa: ARG002 - of a client that goes away the rest is not known
        return Ended(self._session.id, self._clock.now().wall, self._session.failures)

    def settle(self) -> None:
        """Pass the writer the decisions so far, and the number of dropped ones."""
        self.hand_over()
        if self._lost and self.kept:
            self._writer.put(Lost(self._session.id, self._lost))
            self._lost = 0

    def hand_over(self) -> None:
        """Give the writer the decisions so far; if the ledger cannot keep up, they are left out and counted as lost."""
        if self._waiting and self._signature is not None:
            decisions, self._waiting, self._bytes = self._waiting, [], 0
            self._put(decisions, _size(decisions, self._signature.features))
        elif self._parts:
            parts, self._parts, size, self._bytes = self._parts, [], self._bytes, 0
            self._put(Bulk(parts), size + _SEGMENT)

    def _put(self, decisions: Sequence[DecisionRecord] | Bulk, size: int) -> None:
        if self._signature is None:
            return
        first, self._step = self._step + 1, self._step + len(decisions)
        if self.kept and self._writer.has_room(size):
            self._writer.put(Segment(self._session.id, first, self._signature, self._context, decisions, size))
        else:
            self._lost += len(decisions)
            self._left_out.add(len(decisions))


class ResumedRecording(LedgerRecording):
    """The record of a session that goes on, whose end its client tells; else it is interrupted again."""

    _gone = False

    def resume(self, ready: Ready) -> None:
        """Look the session up; see `LedgerRecorder.resumed`."""
        record = Resumed(self._session, self._clock.now().wall)

        def found(error: PolicyBridgeError | None) -> None:
            if error is None:
                self._step = record.held
                self._open[self._session.id] = self
                if self._gone:
                    self.closed()
            ready(error, record.held)

        self._writer.put_urgent(record, found)

    def closed(self, acknowledge: Acknowledge | None = None) -> None:
        """Take the end, which may come before the ledger has found the session."""
        self._gone = True
        super().closed(acknowledge)

    def _begin(self) -> None:
        """Do nothing: it has begun."""

    def _end(self, *, whole: bool) -> Ended:
        return Ended(self._session.id, self._clock.now().wall, interrupted=not whole)


class _LeftOut:
    """Counts the decisions that found no room, and logs their number each time that it is ten times larger."""

    def __init__(self) -> None:
        self.count = 0
        self._told = 1

    def add(self, count: int) -> None:
        self.count += count
        if self.count >= self._told:
            self._told = 10 * self.count
            _LOG.error(
                "the ledger cannot keep up: %d decisions so far are left out of it, and counted as lost in their "
                "sessions; none of them was acknowledged",
                self.count,
            )


def _no_record(session_id: str) -> TooLargeError:
    return TooLargeError(f"the ledger could not keep up when session {session_id} began, and does not hold it")


def _parts(whole: BulkPart) -> Iterator[BulkPart]:
    """Cut decisions into parts for a segment each."""
    columns = whole.observations, whole.advices, whole.chances
    sizes = [len(column) // whole.count for column in columns]
    most = max(1, (_BYTES - BulkPart(b"", b"", 0, 0).size) // max(sum(sizes), 1))
    for first in range(0, whole.count, most):
        last = min(first + most, whole.count)
        cut = [column[first * size : last * size] for column, size in zip(columns, sizes, strict=True)]
        yield BulkPart(cut[0], cut[1], last - first, whole.nanoseconds, cut[2])


def _size(decisions: Sequence[DecisionRecord], features: Layout) -> int:
    size = len(decisions) * (features.size + _DECISION)
    for spec in features.specs:
        if not spec.fixed:
            size += sum(row[spec.name][0].nbytes for row, *_ in decisions if not isinstance(row, bytes))
    return size
