"""The engine: opens sessions on loaded versions, and runs their batches at the end of each turn."""

import asyncio
import itertools
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from time import perf_counter_ns

from policybridge_core.errors import (
    InvalidError,
    PermissionDeniedError,
    PolicyBridgeError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_core.session import Resumption
from policybridge_forms import Drawing
from policybridge_serdes import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_server.backends.contract import SessionView
from policybridge_server.counters import Counters
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Sink
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.loading import Allowances
from policybridge_server.engine.recorder import Acknowledge, Forward, Recorder, Recording, RecordingSink
from policybridge_server.engine.resuming import check_resumption
from policybridge_server.engine.session import EVALUATED, Session
from policybridge_server.engine.timeouts import Timeouts
from policybridge_server.engine.tracing import Tracer
from policybridge_server.engine.trials import Trials
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository
from policybridge_server.repository.rollout import RolloutStep

_LOG = logging.getLogger(__name__)


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
        self,
        loaded: LoadedVersion,
        options: SessionOptions,
        sink: Sink,
        alias: str = "",
        reporter: str = "",
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
            OutOfScopeError: the policy's scope, or that of each kind, does not have the session's labels.

        """
        loaded.stored.check_scope(options.labels)
        outside = loaded.stored.outside(options.labels)
        resumes = options.resumes
        if resumes is not None:
            self._check_resumption(resumes, loaded)
        if options.exploration is not None:
            for model in loaded.models.values():
                _check_exploration(model, options.exploration)
        view = _view(loaded.stored.policy, options, self.mark)
        view.alias, view.reporter = alias if resumes is None else resumes.alias, reporter
        forms = (loaded.forms.without(outside) or None) if options.evaluates and loaded.forms else None
        if forms is not None:
            view.labels = {**view.labels, **EVALUATED}
        if resumes is None:
            self.trials.opened(view, self.repository.find(view.policy.name))
        recording_sink = None
        if self._recorder is not None and resumes is None:
            recording_sink = RecordingSink(self._recorder.opened(view), sink)
        trace = None if self._tracer is None else self._tracer.opened(view)
        session = Session(view, loaded, sink, self, (recording_sink, trace))
        session.outside = outside
        session.forms = forms
        self._sessions[view.id] = session
        _LOG.debug("session on %s", loaded.stored, extra={"session": view.id})
        loaded.begin()
        loaded.counters.opened += 1
        return session

    def _check_resumption(self, resumes: Resumption, loaded: LoadedVersion) -> None:
        if self._recorder is None:
            raise UnsupportedError("this server keeps no ledger, so that it takes no record of an earlier session")
        if resumes.session in self._sessions:
            raise UnavailableError(f"session {resumes.session} still runs; send its record when it is over")
        check_resumption(resumes, loaded.stored.policy, loaded.forms)

    def resume(self, session: Session, ready: Callable[[PolicyBridgeError | None, int], None]) -> Recording | None:
        """Make the record of a session that goes on; see `Recorder.resumed`."""
        return None if self._recorder is None else self._recorder.resumed(session.view, ready)

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
        """End the turn: run all scheduled batchers; return the number of decisions that clients ask for."""
        count, begun = 0, self.counters.woke
        while self._scheduled:
            scheduled, self._scheduled = self._scheduled, []
            read = perf_counter_ns()
            for batcher in scheduled:
                count += batcher.run(begun, read)
            begun = perf_counter_ns()
        if self._recorder is not None:
            self._recorder.end_turn()
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
    # As random as a UUID, in a fifth of its time.
    session_id = os.urandom(16).hex()[: 32 - len(mark)] + mark if options.resumes is None else options.resumes.session
    view = SessionView(
        session_id, policy, options.context, dict(options.options), dict(options.labels), file=options.file
    )
    if options.exploration is not None:
        view.exploration = options.exploration
        view.drawing = Drawing(options.exploration)
    return view
