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
        """Return the sink of the next decision: ``inner``, or a tracing sink before it."""

    def failed(self, error: PolicyBridgeError) -> None:
        """Take the error that ends the session."""

    def reported(self, outcome: Outcome) -> None:
        """Take an outcome."""

    def ended(self) -> None:
        """Take the end of the session."""


class Tracer(Protocol):
    """Follows sessions. Called on the loop thread; must neither wait nor raise."""

    def opened(self, session: SessionView) -> SessionTrace | None:
        """Return the trace of a session; ``None`` if it is not traced, at no cost."""

    def close(self) -> None:
        """Send the remaining spans. Call this after the loop's end."""


class TracingSink:
    """A sink before a session's sink that reports errors to the trace and passes advice on."""

    def __init__(self, trace: SessionTrace, sink: Sink) -> None:
        self.answer = sink.answer
        self._trace = trace
        self._sink = sink

    def fail(self, error: PolicyBridgeError) -> None:
        """Pass the error on, which ends the session."""
        self._trace.failed(error)
        self._sink.fail(error)
