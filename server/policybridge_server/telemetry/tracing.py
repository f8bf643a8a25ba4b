"""Traces by OpenTelemetry: a span for each session, below the build's own, and spans of some of its decisions."""

from collections.abc import Mapping
from time import time_ns
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Outcome, Values
from policybridge_server.backends.contract import SessionView
from policybridge_server.config import ServerConfig
from policybridge_server.engine.decision import Sink
from policybridge_server.engine.tracing import TRACEPARENT

_SCOPE: Final = InstrumentationScope("policybridge")

_STATUS: Final = "policybridge.status"

_LABEL: Final = 200
"""Characters of a label's name and of its value in a span."""

_LABELS: Final = 16
"""Labels in a span; a client may send any number."""


class OtlpTracer:
    """Sends spans to an OTLP receiver, from a thread of its own; implements `Tracer`.

    The flag in a session's trace context, set by its build, decides whether it is traced. Sessions without a
    context are drawn.

    Args:
        config: of the server, with ``traces``.

    """

    def __init__(self, config: ServerConfig) -> None:
        sampler = ParentBased(TraceIdRatioBased(config.trace_sessions))
        self._resource = Resource.create({"service.name": _SCOPE.name})
        self._provider = TracerProvider(sampler, self._resource)
        endpoint = f"{(config.traces or '').rstrip('/')}/v1/traces"
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer(_SCOPE.name)
        self._propagator = TraceContextTextMapPropagator()
        self._ids = RandomIdGenerator()
        # Every n-th decision of a session is traced: counting is cheaper than drawing.
        self._every = round(1 / config.trace_decisions) if config.trace_decisions else 0

    def opened(self, session: SessionView) -> "OtlpSession | None":
        """Begin the span of a session, unless it is not sampled."""
        parent = self._propagator.extract({TRACEPARENT: session.labels.get(TRACEPARENT, "")}, Context())
        span = self._tracer.start_span("session", parent, SpanKind.SERVER)
        if not span.is_recording():
            return None
        span.set_attribute("policybridge.session", session.id)
        span.set_attribute("policybridge.policy", session.policy.name)
        span.set_attribute("policybridge.version", session.policy.version)
        return OtlpSession(self, span, session, self._every)

    def decided(
        self, parent: SpanContext, attributes: Mapping[str, AttributeValue], begun: int, status: Status
    ) -> None:
        """Send the span of a decision, which began at ``begun``, nanoseconds since 1970, and ends now."""
        # Making a finished span takes a tenth of the time of a mutable one.
        span = ReadableSpan(
            "decision",
            SpanContext(parent.trace_id, self._ids.generate_span_id(), False, parent.trace_flags, parent.trace_state),
            parent,
            self._resource,
            attributes,
            status=status,
            start_time=begun,
            end_time=time_ns(),
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(span)

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


class OtlpSession:
    """The spans of one session; implements `SessionTrace`. Made by `OtlpTracer.opened`."""

    def __init__(self, tracer: OtlpTracer, span: Span, session: SessionView, every: int) -> None:
        self._tracer = tracer
        self._span = span
        self._session = session
        self._every = every
        self._count = 0

    def sink(self, inner: Sink) -> Sink:
        """Return a sink before that of a traced decision; the first decision of a session is always traced."""
        step, self._count = self._count, self._count + 1
        return inner if not self._every or step % self._every else _DecisionSpan(self, inner, step + 1)

    def failed(self, error: PolicyBridgeError) -> None:
        """Say in the session's span why it failed."""
        self._span.set_status(_failure(error))
        self._span.set_attribute(_STATUS, error.status.name)

    def decided(self, step: int, begun: int, error: PolicyBridgeError | None) -> None:
        """Send the span of a decision: the ``step``-th of the session, which began at ``begun``."""
        attributes: dict[str, AttributeValue] = {"policybridge.step": step}
        if self._session.context:
            attributes["policybridge.context"] = self._session.context[:_LABEL]
        if error is not None:
            attributes[_STATUS] = error.status.name
        status = Status() if error is None else _failure(error)
        self._tracer.decided(self._span.get_span_context(), attributes, begun, status)

    def reported(self, outcome: Outcome) -> None:
        """Keep the client's report of the compilation."""
        self._span.set_attribute("policybridge.outcome", outcome.status)
        for name, value in list(outcome.values.items())[:_LABELS]:
            self._span.set_attribute(f"policybridge.outcome.{name}", value)

    def ended(self) -> None:
        """End the span."""
        # Only now, because one of them says who decided.
        labels = [(name, value) for name, value in self._session.labels.items() if name != TRACEPARENT]
        for name, value in labels[:_LABELS]:
            self._span.set_attribute(f"policybridge.label.{name[:_LABEL]}", value[:_LABEL])
        self._span.set_attribute("policybridge.decisions", self._count)
        self._span.end()


class _DecisionSpan:
    """Stands before the sink of one decision and makes its span when the answer comes; implements `Sink`."""

    def __init__(self, session: OtlpSession, inner: Sink, step: int) -> None:
        self._session = session
        self._inner = inner
        self._step = step
        self._begun = time_ns()

    def answer(self, advice: Values, log_probability: float | None) -> None:
        self._inner.answer(advice, log_probability)
        self._session.decided(self._step, self._begun, None)

    def fail(self, error: PolicyBridgeError) -> None:
        self._session.decided(self._step, self._begun, error)
        self._inner.fail(error)


def _failure(error: PolicyBridgeError) -> Status:
    return Status(StatusCode.ERROR, str(error))
