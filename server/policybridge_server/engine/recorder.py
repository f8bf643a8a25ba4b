"""What may listen to sessions: the recorder, and the tap that tells it what was asked and answered."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome, Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.decision import Sink

Reported = Callable[[PolicyBridgeError | None], None]
"""Told on the loop thread that a report is kept, or why it is not."""


class Recording(Protocol):
    """The record of one session. Called on the loop thread; must neither wait nor raise."""

    def bound(self, signature: Signature) -> None:
        """Take the signature of the observations from here on."""
        ...

    def decided(self, row: Row, advice: Values, log_probability: float | None, nanoseconds: int) -> None:
        """Take a decision, before its answer is sent; ``nanoseconds`` from its submission to its advice."""
        ...

    def closed(self) -> None:
        """Take the end of the session."""
        ...


class Recorder(Protocol):
    """Keeps sessions. Called on the loop thread; must neither wait nor raise."""

    def opened(self, session: SessionView) -> Recording:
        """Begin the record of a session; nothing of it is kept before its signature is bound."""
        ...

    def report(self, session_id: str, outcome: Outcome | None, reported: Reported) -> None:
        """Keep an outcome (``None``: just what there is so far), and tell when nothing of the session can be lost.

        ``reported`` gets a `NotFoundError` where no session of that id is kept.
        """
        ...


class RecordingSink:
    """Between a session and its sink: tells the recording of every decision, in the order of the observations."""

    def __init__(self, recording: Recording, sink: Sink) -> None:
        self.recording = recording
        self._sink = sink
        self._asked: deque[tuple[Row, int]] = deque()

    def asked(self, row: Row) -> None:
        """Take an observation that is submitted."""
        self._asked.append((row, perf_counter_ns()))

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Record the decision, then pass it on."""
        row, begun = self._asked.popleft()
        self.recording.decided(row, advice, log_probability, perf_counter_ns() - begun)
        self._sink.answer(advice, log_probability)

    def fail(self, error: PolicyBridgeError) -> None:
        """Pass the error on: it is no decision."""
        self._asked.popleft()
        self._sink.fail(error)


async def wait_recorded(report: Callable[[Reported], None]) -> None:
    """Call ``report``, and wait until the ledger holds what it reports.

    Raises:
        PolicyBridgeError: it does not.

    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reported(error: PolicyBridgeError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    report(reported)
    await future
