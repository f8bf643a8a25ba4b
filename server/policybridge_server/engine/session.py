"""A session: one compilation's conversation with one version."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from policybridge_core.errors import (
    InvalidError,
    NotFoundError,
    OutOfScopeError,
    PolicyBridgeError,
    PreconditionError,
)
from policybridge_serdes import Outcome, PolicyVersion, Signature
from policybridge_serdes.interactive import Decided
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.client_decisions import ClientDecisions
from policybridge_server.engine.decision import Decision, Sink
from policybridge_server.engine.forms import Forms
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.recorder import Acknowledge, Forward, Recording, RecordingSink
from policybridge_server.engine.resuming import HeldDecisions
from policybridge_server.engine.tracing import SessionTrace, TracingSink

EVALUATED: Final = {"evaluated": "client"}
"""The label of a session whose client has a form, unless the server made all of its decisions."""

Recorded = tuple[RecordingSink | None, SessionTrace | None]
"""The observers of a session's decisions: the ledger, and a trace."""


class Sessions(Protocol):
    """The sessions' owner: the engine."""

    def schedule(self, batcher: Batcher) -> None:
        """Let ``batcher`` run at the end of the turn."""

    @property
    def forward(self) -> Forward:
        """Reports an outcome in the process that has the session."""

    def resume(self, session: "Session", ready: Callable[[PolicyBridgeError | None, int], None]) -> Recording | None:
        """Make the record of a session that goes on."""

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str = "") -> None:
        """Record the outcome of a session."""

    def forget(self, session: "Session") -> None:
        """End the session; a second call does nothing."""


class Session:
    """One compilation's conversation with one version. Made by ``Engine.open``; for the loop thread.

    Attributes:
        forms: the portable forms that the client may evaluate; ``None``: the server makes each decision.
        outside: the kinds of decisions whose scope does not have the session's labels → why.

    """

    def __init__(
        self,
        view: SessionView,
        loaded: LoadedVersion,
        sink: Sink,
        engine: Sessions,
        recorded: Recorded,
    ) -> None:
        recording_sink, trace = recorded
        sink = recording_sink or sink
        self.view = view
        self.loaded = loaded
        self._trace = trace
        self._sink = sink if trace is None else TracingSink(trace, sink)
        self._recording_sink = recording_sink
        self._engine = engine
        self._batcher: Batcher | None = None
        self._client_decisions: ClientDecisions | None = None
        self._sent_forms: set[str] = set()
        self._signature: Signature | None = None
        self.forms: Forms | None = None
        self.outside: Mapping[str, str] = {}
        self._on_end: Callable[[], None] | None = None
        self._held: HeldDecisions | None = None
        self._is_over = False
        # Whether the client made one of the decisions; None: there is none.
        self._by_client: bool | None = None

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self.loaded.stored.policy

    @property
    def decides(self) -> tuple[str, ...]:
        """The kinds of decisions that the policy declares for this session, each by the advice's name; empty: any."""
        return tuple(kind for kind in self.loaded.stored.config.decides if kind not in self.outside)

    def bind(self, signature: Signature) -> tuple[str, ...]:
        """Set the signature of the following observations; give the names of the features that the model ignores.

        Raises:
            InvalidError: the signature does not fit the policy's, or is of a kind of decision that the policy lacks.
            OutOfScopeError: the scope of this kind does not have the session's labels.

        """
        if signature.advice.name in self.outside:
            raise OutOfScopeError(self.outside[signature.advice.name])
        kinds = self.decides
        if kinds and signature.advice.name not in kinds:
            raise InvalidError(f"{self.loaded.stored} decides {', '.join(kinds)}, and not {signature.advice.name!r}")
        batcher = self.loaded.batcher(signature, self._engine.schedule)
        self._check_decisions()
        self._unbind()
        self._batcher, self._signature, self._client_decisions = batcher, signature, None
        batcher.sessions += 1
        if self._recording_sink is not None:
            self._recording_sink.recording.bound(signature)
        return self._batcher.ignored

    def _check_decisions(self) -> None:
        """Make again those of the client's decisions that are drawn so far."""
        if self._client_decisions is not None:
            self._client_decisions.check()

    def _unbind(self) -> None:
        if self._batcher is not None:
            self._batcher.sessions -= 1

    def submit(self, row: Row) -> None:
        """Ask for one decision; the sink gets the advice at the end of the turn, or when the worker has evaluated it.

        Raises:
            PreconditionError: no signature is bound yet.

        """
        if self._batcher is None:
            raise PreconditionError("an observation came before the signature of its features")
        if self.forms is not None and self._signature is not None:
            self.loaded.model(self._signature).counters.asked_by_clients += 1
            if self._by_client is None:
                self._by_client = False
                self._label(by_client=False)
        if self._recording_sink is not None:
            self._recording_sink.submitted(row)
        sink = self._sink if self._trace is None else self._trace.sink(self._sink)
        self._batcher.submit(Decision(self.view, row, sink))

    def decided(self, decided: Decided, taken: Callable[[], None]) -> None:
        """Take decisions that the client made by the version's form; see `ClientDecisions.take`.

        Raises:
            PreconditionError: no signature is bound yet, or the session has no form.
            InvalidError: they are not decisions of this signature, or not of this policy.

        """
        if self._client_decisions is None:
            self._client_decisions = self._begin_client_decisions()
        self._client_decisions.take(decided, taken)
        if not self._by_client:
            self._by_client = True
            self._label(by_client=True)

    def _label(self, *, by_client: bool) -> None:
        """Set or remove the label `EVALUATED`, also in the record."""
        if by_client and EVALUATED.items() <= self.view.labels.items():
            return
        others = {name: value for name, value in self.view.labels.items() if name not in EVALUATED}
        labels = {**others, **EVALUATED} if by_client else others
        if labels != self.view.labels:
            self.view.labels = labels
            if self._recording_sink is not None:
                self._recording_sink.recording.labelled()

    def form(self, digest: str) -> bytes:
        """Give the form of this digest.

        Raises:
            NotFoundError: the session's version has none.
            PreconditionError: the client has it already.

        """
        data = None if self.forms is None else self.forms.data(digest)
        if data is None:
            raise NotFoundError(f"{self.loaded.stored} has no form {digest!r} for this session")
        if digest in self._sent_forms:
            raise PreconditionError(f"the form {digest} was sent in this session already")
        self._sent_forms.add(digest)
        return data

    def resume(self, ready: Acknowledge) -> None:
        """Let the session go on by its client's record; ``ready`` is called with the reason of a refusal, or ``None``.

        Only `bind`, `context`, `decided`, `report` and `finish` may follow.
        """

        def found(error: PolicyBridgeError | None, held: int) -> None:
            self._held = HeldDecisions(held)
            ready(error)

        def look(_: PolicyBridgeError | None = None) -> None:
            if self._is_over:
                return
            recording = self._engine.resume(self, found)
            self._recording_sink = None if recording is None else RecordingSink(recording, self._sink)

        # Another process of the server may have it, and then first writes down that it runs.
        if not self._engine.forward(self.view.id, None, look, self.view.reporter):
            look()

    def _begin_client_decisions(self) -> ClientDecisions:
        if self._batcher is None or self._signature is None:
            raise PreconditionError("decisions came before the signature of their features")
        if self.forms is None:
            raise PreconditionError(f"{self.loaded.stored} was not opened to be evaluated by the client")
        recording = None if self._recording_sink is None else self._recording_sink.recording
        model = self.loaded.model(self._signature)
        decisions = ClientDecisions(self.view, self._signature, model, self._batcher, recording)
        decisions.held = self._held
        return decisions

    def context(self, name: str) -> None:
        """Name the function (or module) that the following observations belong to."""
        self.view.context = name

    def report(self, outcome: Outcome | None, acknowledge: Acknowledge) -> None:
        """Record the session's outcome; see `Engine.report`."""
        self._check_decisions()
        if self._trace is not None and outcome is not None:
            self._trace.reported(outcome)
        self._engine.report(self.view.id, outcome, acknowledge, self.view.reporter)

    @property
    def recorded(self) -> bool:
        """Whether the session is recorded."""
        return self._recording_sink is not None

    def finish(self, acknowledge: Acknowledge) -> None:
        """End the session, and call ``acknowledge`` when its record, to the end, is durable; at once without a ledger.

        All its observations are answered.

        Raises:
            InvalidError: a record that its client sent again lacks decisions that the ledger holds.

        """
        if self._held is not None:
            self._held.check_all()
        if self._recording_sink is None:
            acknowledge(None)
        else:
            self._recording_sink.recording.closed(acknowledge)
        self.close()

    def close(self) -> None:
        """End the session; a second call does nothing."""
        self._engine.forget(self)

    def on_end(self, ended: Callable[[], None]) -> None:
        """Call ``ended`` when the session ends."""
        self._on_end = ended

    def end(self) -> None:
        """Unbind, and end the session in the model and in the record. Called once, by the engine."""
        self._is_over = True
        self._check_decisions()
        self._unbind()
        self.loaded.end(self.view)
        if self._recording_sink is not None:
            self._recording_sink.recording.closed()
        if self._trace is not None:
            self._trace.ended()
        if self._on_end is not None:
            self._on_end()
