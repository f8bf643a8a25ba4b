"""The interface for traces: a tracer may trace a session, and some of the session's decisions."""

from typing import Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.decision import Sink

TRACEPARENT = "traceparent"
"""A session's label with the compilation's W3C trace context, as in the environment variable TRACEPARENT."""


class SessionTrace(Protocol):
    """The trace of one session. Called on the loop thread; must neither wait nor raise."""

    def sink(self, inner: Sink) -> Sink:
        """Return the sink of the next decision: ``inner``, or a tracing sink that wraps it."""

    def failed(self, error: PolicyBridgeError) -> None:
        """Take the error that ends the session."""

    def reported(self, outcome: Outcome) -> None:
        """Take an outcome."""

    def ended(self) -> None:
        """Take the end of the session."""


class Tracer(Protocol):
    """Follows sessions. Called on the loop thread; must neither wait nor raise."""

    def opened(self, session: SessionView) -> SessionTrace | None:
        """Return the trace of a session; ``None``: the session is not traced, and its decisions cost nothing more."""

    def close(self) -> None:
        """Send the remaining spans. Call this after the loop's end."""


class TracingSink:
    """Wraps a session's sink: reports errors to the trace, passes advice on directly."""

    def __init__(self, trace: SessionTrace, sink: Sink) -> None:
        self.answer = sink.answer
        self._trace = trace
        self._sink = sink

    def fail(self, error: PolicyBridgeError) -> None:
        """Report the error to the trace and pass it on; the error ends the session."""
        self._trace.failed(error)
        self._sink.fail(error)
