"""The interface for the ledger. A recorder makes the record of each session; a `RecordingSink` adds the decisions."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome, Signature, Values
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.decision import Sink
from policybridge_server.repository.rollout import RolloutStep

Acknowledge = Callable[[PolicyBridgeError | None], None]
"""Called on the loop thread: with ``None`` when a report is durable, or with the reason why it is not."""

Forward = Callable[[str, Outcome | None, Acknowledge, str], bool]
"""Reports a reporter's outcome of a session, by its id, in the process that has it; false: this process has it."""


class Recording(Protocol):
    """The record of one session. Called on the loop thread; must neither wait nor raise."""

    def bound(self, signature: Signature) -> None:
        """Take the signature of the following observations."""

    def labelled(self) -> None:
        """Take the session's labels, which have changed."""

    def decided(self, row: Row, advice: Values, log_probability: float | None, nanoseconds: int) -> None:
        """Take a decision, before the advice is sent; ``nanoseconds`` is the time from its submission to its advice."""

    def reported(
        self, count: int, observations: Buffer, advices: Buffer, nanoseconds: int, chances: Buffer = b""
    ) -> None:
        """Take ``count`` decisions that the client made by itself, packed, of ``nanoseconds`` each on average.

        ``chances`` are their log-probabilities, packed floats; empty without exploration.
        """

    def keep_pace(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` at once, or if the ledger is behind, when it has written the decisions so far."""

    def closed(self, acknowledge: Acknowledge | None = None) -> None:
        """Take the end of the session, and acknowledge it when it and all decisions of the session are durable.

        A second call changes nothing in the record.
        """


class Recorder(Protocol):
    """Records sessions. Called on the loop thread; must neither wait nor raise."""

    def opened(self, session: SessionView) -> Recording:
        """Make the record of a session. A session that ends before its signature is bound leaves no record."""

    def resumed(self, session: SessionView, ready: Callable[[PolicyBridgeError | None, int], None]) -> Recording:
        """Make the record of a session that goes on.

        ``ready`` is called with the number of decisions that the ledger holds, or with the reason of a refusal.
        """

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str = "") -> None:
        """Record an outcome of a reporter, and acknowledge when it and all decisions of the session so far are durable.

        Without an ``outcome`` only the decisions are acknowledged. ``acknowledge`` gets a `NotFoundError` if no
        session of that id is recorded.
        """

    def end_turn(self) -> None:
        """Write soon the records whose acknowledgement clients wait for: all of one turn of the loop are here."""

    def step(self, step: RolloutStep, acknowledge: Acknowledge) -> None:
        """Record a step of a roll-out, and acknowledge when it is durable."""


class RecordingSink:
    """Wraps a session's sink: passes every decision to the recording before the sink gets it."""

    def __init__(self, recording: Recording, sink: Sink) -> None:
        self.recording = recording
        self._sink = sink
        self._submitted: deque[tuple[Row, int]] = deque()

    def submitted(self, row: Row) -> None:
        """Take an observation at its submission; answers come in the same order."""
        self._submitted.append((row, perf_counter_ns()))

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Record the decision, then pass the advice on."""
        row, begun = self._submitted.popleft()
        self.recording.decided(row, advice, log_probability, perf_counter_ns() - begun)
        self._sink.answer(advice, log_probability)

    def fail(self, error: PolicyBridgeError) -> None:
        """Pass the error on. An error is no decision, so it is not recorded."""
        self._submitted.popleft()
        self._sink.fail(error)


async def wait_recorded(report: Callable[[Acknowledge], None]) -> None:
    """Call ``report``, and wait until the report is durable.

    Raises:
        PolicyBridgeError: the report cannot be made durable.

    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def acknowledge(error: PolicyBridgeError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    report(acknowledge)
    await future
