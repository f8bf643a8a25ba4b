"""The engine: opens sessions on loaded versions, and runs their batches at the end of each turn."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Mapping
from time import perf_counter_ns

import numpy as np

from policybridge_core.errors import InvalidError, PermissionDeniedError, PreconditionError, UnsupportedError
from policybridge_serdes import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.counters import Counters
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision, Sink
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.loading import Allowances
from policybridge_server.engine.recorder import Acknowledge, Forward, Recorder, RecordingSink
from policybridge_server.engine.timeouts import Timeouts
from policybridge_server.engine.tracing import SessionTrace, Tracer, TracingSink
from policybridge_server.engine.trials import Trials
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository
from policybridge_server.repository.rollout import RolloutStep

_LOG = logging.getLogger(__name__)

Recorded = tuple[RecordingSink | None, SessionTrace | None]
"""The observers of a session's decisions: the ledger, and a trace."""


class Session:
    """One compilation's conversation with one version. Made by ``Engine.open``; for the loop thread."""

    def __init__(
        self,
        view: SessionView,
        loaded: LoadedVersion,
        sink: Sink,
        engine: "Engine",
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
        self._on_end: Callable[[], None] | None = None

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self.loaded.stored.policy

    @property
    def decides(self) -> tuple[str, ...]:
        """The kinds of decisions that the policy declares, each by the advice's name; empty: any."""
        return self.loaded.stored.config.decides

    def bind(self, signature: Signature) -> tuple[str, ...]:
        """Set the signature of the following observations; give the names of the features that the model ignores.

        Raises:
            InvalidError: the signature does not fit the policy's, or is of a kind of decision that the policy lacks.

        """
        kinds = self.decides
        if kinds and signature.advice.name not in kinds:
            raise InvalidError(f"{self.loaded.stored} decides {', '.join(kinds)}, and not {signature.advice.name!r}")
        batcher = self.loaded.batcher(signature, self._engine.schedule)
        self._unbind()
        self._batcher = batcher
        batcher.sessions += 1
        if self._recording_sink is not None:
            self._recording_sink.recording.bound(signature)
        return self._batcher.ignored

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
        if self._recording_sink is not None:
            self._recording_sink.submitted(row)
        sink = self._sink if self._trace is None else self._trace.sink(self._sink)
        self._batcher.submit(Decision(self.view, row, sink))

    def context(self, name: str) -> None:
        """Name the function (or module) that the following observations belong to."""
        self.view.context = name

    def report(self, outcome: Outcome | None, acknowledge: Acknowledge) -> None:
        """Record the session's outcome; see `Engine.report`."""
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
        """
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
        self._unbind()
        self.loaded.end(self.view)
        if self._recording_sink is not None:
            self._recording_sink.recording.closed()
        if self._trace is not None:
            self._trace.ended()
        if self._on_end is not None:
            self._on_end()


class Engine:
    """Loaded versions and live sessions.

    Args:
        repository: the source of policies.
        allow_python: whether artifacts that are code may run.
        recorder: records the sessions; ``None``: they are not recorded.
        timeouts: the limits of versions' time.
        tracer: traces sessions; ``None``: no traces.

    Attributes:
        counters: the counters of the engine.
        mark: the end of its sessions' ids; empty: no other process has sessions.
        forward: takes the outcomes of other processes' sessions.
        trials: the files that failed under the roll-outs that run.
        needs_report_scope: whether an outcome of a reporter is refused; see `SessionView.reporter`.

    """

    def __init__(
        self,
        repository: Repository,
        *,
        allow_python: bool,
        recorder: Recorder | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - it is frozen
        tracer: Tracer | None = None,
    ) -> None:
        self.mark = ""
        self.forward: Forward = lambda *_: False
        self.repository = repository
        self.counters = Counters()
        self.trials = Trials()
        self.needs_report_scope = False
        self.versions = LoadedVersions(repository, Allowances(allow_python, timeouts, counters=self.counters))
        self._recorder = recorder
        self._tracer = tracer
        self._sessions: dict[str, Session] = {}
        self._scheduled: list[Batcher] = []
        self._prefix, self._numbers = uuid.uuid4().hex[:16], itertools.count()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let slow models run in worker threads beside the thread of ``loop``. Without it, all run in the caller's."""
        self.versions.attach(loop)

    @property
    def sessions(self) -> int:
        """Number of live sessions."""
        return len(self._sessions)

    def loaded(self, reference: PolicyReference) -> LoadedVersion | None:
        """Give the version that ``reference`` means now, if it is loaded.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: its ``policy.toml`` cannot be used.

        """
        return self.versions.get(self.repository.resolve(reference).policy)

    def load(self, reference: PolicyReference) -> LoadedVersion:
        """Give the version that ``reference`` means now; see `LoadedVersions.load`."""
        return self.versions.load(reference)

    def open(
        self, loaded: LoadedVersion, options: SessionOptions, sink: Sink, alias: str = "", reporter: str = ""
    ) -> Session:
        """Begin a session. It keeps this version, whatever is published before it ends.

        Args:
            loaded: the version.
            options: of the client.
            sink: takes the advice.
            alias: see `SessionView`.
            reporter: likewise.

        Raises:
            InvalidError: the options ask for exploration, and the policy has no advice head, or none for it.
            OutOfScopeError: the policy's scope does not have the session's labels.

        """
        loaded.stored.check_scope(options.labels)
        if options.exploration is not None:
            for model in loaded.models.values():
                _check_exploration(model, options.exploration)
        view = _view(loaded.stored.policy, options, self.mark)
        view.alias, view.reporter = alias, reporter
        self.trials.opened(view, self.repository.find(view.policy.name))
        recording_sink = None if self._recorder is None else RecordingSink(self._recorder.opened(view), sink)
        trace = None if self._tracer is None else self._tracer.opened(view)
        session = Session(view, loaded, sink, self, (recording_sink, trace))
        self._sessions[view.id] = session
        _LOG.debug("session on %s", loaded.stored, extra={"session": view.id})
        loaded.begin()
        loaded.counters.opened += 1
        return session

    def forget(self, session: Session) -> None:
        """End ``session``; a second call does nothing."""
        if self._sessions.pop(session.view.id, None) is not None:
            session.end()
            self.trials.ended(session.view)
            self.counters.closed(session.view.id, session.loaded.counters)
            self.versions.release(session.loaded)

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str = "") -> None:
        """Record the outcome of a session that is open or over; see `Recorder.report`.

        Raises:
            UnsupportedError: this server records nothing.
            PermissionDeniedError: outcomes need the scope `report`, and ``reporter`` is one without it.

        """
        if outcome is not None and reporter and self.needs_report_scope:
            raise PermissionDeniedError(f"outcomes need the scope report here (--report-scope), which {reporter} lacks")
        if not self.forward(session_id, outcome, acknowledge, reporter):
            self.report_here(session_id, outcome, acknowledge, reporter)

    def report_here(
        self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str = ""
    ) -> None:
        """Record the outcome of a session of this process, or of one that no process has; see `report`."""
        if outcome is not None:
            session = self._sessions.get(session_id)
            counters = self.counters.version_of(session_id) if session is None else session.loaded.counters
            counters.reported(outcome.status, outcome.values)
            if not reporter and outcome.status not in ("", "ok"):
                self.trials.failed(session_id)
        if self._recorder is None:
            raise UnsupportedError("this server keeps no ledger; its operator asks for one with --ledger PATH")
        self._recorder.report(session_id, outcome, acknowledge, reporter)

    @property
    def records(self) -> bool:
        """Whether sessions are recorded."""
        return self._recorder is not None

    def live(self) -> list[Session]:
        """Give the sessions that are open now, the oldest first."""
        return list(self._sessions.values())

    def record(self, step: RolloutStep, acknowledge: Acknowledge) -> None:
        """Record a step of a roll-out; without a ledger it is acknowledged at once."""
        if self._recorder is None:
            acknowledge(None)
        else:
            self._recorder.step(step, acknowledge)

    def single_view(self, loaded: LoadedVersion, options: Mapping[str, str]) -> SessionView:
        """Return the session view of an observation without a session."""
        # Counted: a random UUID for each observation takes 3 µs.
        return SessionView(f"{self._prefix}{next(self._numbers):016x}", loaded.stored.policy, options=dict(options))

    def schedule(self, batcher: Batcher) -> None:
        """Let ``batcher`` run at the end of the turn."""
        self._scheduled.append(batcher)

    def flush(self) -> int:
        """End the turn: run the scheduled batchers, until none is left; return the number of decisions."""
        count, begun = 0, self.counters.woke
        while self._scheduled:
            scheduled, self._scheduled = self._scheduled, []
            read = perf_counter_ns()
            for batcher in scheduled:
                count += batcher.run(begun, read)
            begun = perf_counter_ns()
        return count

    def close(self) -> None:
        """Free all models."""
        self.versions.close()


def _check_exploration(model: LoadedModel, exploration: Exploration) -> None:
    if model.head is None:
        raise InvalidError(
            f"{model.stored} has no advice head ([head] in policy.toml), so it cannot explore: the possible "
            'advices are not known. If its advice is one of 0 to N − 1, set scores = "choice" and '
            "choices = N there, to explore by epsilon"
        )
    model.head.check(exploration)


def _view(policy: PolicyVersion, options: SessionOptions, mark: str) -> SessionView:
    session_id = uuid.uuid4().hex[: 32 - len(mark)] + mark
    view = SessionView(
        session_id, policy, options.context, dict(options.options), dict(options.labels), file=options.file
    )
    if options.exploration is not None:
        view.exploration = options.exploration
        view.generator = np.random.default_rng(options.exploration.seed)
    return view
