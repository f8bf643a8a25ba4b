"""The seam of traces: a tracer may follow a session, and some of its decisions."""

from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.decision import Sink

TRACEPARENT = "traceparent"
"""The label of a session that holds the W3C trace context of the compilation, as the environment's TRACEPARENT."""


class SessionTrace(Protocol):
    """The trace of one session. Called on the loop thread; must neither wait nor raise."""

    def sink(self, inner: Sink) -> Sink:
        """Give the sink of the next decision: ``inner``, or one that stands before it and traces the decision."""

    def failed(self, error: PolicyBridgeError) -> None:
        """Take the error that ends the session."""

    def reported(self, outcome: Outcome) -> None:
        """Take an outcome."""

    def ended(self) -> None:
        """Take the end of the session."""


class Tracer(Protocol):
    """Follows sessions. Called on the loop thread; must neither wait nor raise."""

    def opened(self, session: SessionView) -> SessionTrace | None:
        """Give the trace of a session; ``None``: nobody wants one, and then it costs nothing."""

    def close(self) -> None:
        """Send what is left. Call this after the loop's end."""


class TracingSink:
    """Stands between a session and its sink, and tells the trace of an error; advice passes it by."""

    def __init__(self, trace: SessionTrace, sink: Sink) -> None:
        self.answer = sink.answer
        self._trace = trace
        self._sink = sink

    def fail(self, error: PolicyBridgeError) -> None:
        """Pass the error on, which ends the session."""
        self._trace.failed(error)
        self._sink.fail(error)
