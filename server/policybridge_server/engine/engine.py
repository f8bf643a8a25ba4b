"""The engine: opens sessions on loaded versions, and runs their batches at the end of each turn."""

import uuid
from collections.abc import Callable

import numpy as np

from policybridge_core.errors import InvalidError, PreconditionError, UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision, Sink
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.recorder import Acknowledge, Recorder, RecordingSink
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository


class Session:
    """One compilation's conversation with one version. Made by ``Engine.open``; for the loop thread."""

    def __init__(
        self,
        view: SessionView,
        loaded: LoadedVersion,
        sink: Sink,
        engine: "Engine",
        recording_sink: RecordingSink | None = None,
    ) -> None:
        self.view = view
        self.loaded = loaded
        self._unrecorded_sink = sink
        self._sink = recording_sink or sink
        self._recording_sink = recording_sink
        self._engine = engine
        self._batcher: Batcher | None = None

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self.loaded.stored.policy

    def bind(self, signature: Signature) -> tuple[str, ...]:
        """Set the signature of the following observations; give the names of the features that the model ignores.

        Raises:
            InvalidError: the signature does not fit the policy's.

        """
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
        self._batcher.submit(Decision(self.view, row, self._sink))

    def context(self, name: str) -> None:
        """Name the function (or module) that the following observations belong to."""
        self.view.context = name

    def leave_unrecorded(self) -> None:
        """Record nothing of this session; call this before the signature is bound."""
        self._sink, self._recording_sink = self._unrecorded_sink, None

    def report(self, outcome: Outcome | None, acknowledge: Acknowledge) -> None:
        """Record the session's outcome; see `Engine.report`."""
        self._engine.report(self.view.id, outcome, acknowledge)

    @property
    def recorded(self) -> bool:
        """Whether the session is recorded."""
        return self._recording_sink is not None

    def close(self) -> None:
        """End the session; a second call does nothing."""
        self._engine.forget(self)

    def end(self) -> None:
        """Unbind, and end the session in the model and in the record. Called once, by the engine."""
        self._unbind()
        self.loaded.end(self.view)
        if self._recording_sink is not None:
            self._recording_sink.recording.closed()


class Engine:
    """Loaded versions and live sessions.

    Args:
        repository: where policies are found.
        allow_python: whether artifacts that are code may run.
        recorder: records the sessions; ``None``: they are not recorded.

    """

    def __init__(self, repository: Repository, *, allow_python: bool, recorder: Recorder | None = None) -> None:
        self.repository = repository
        self.versions = LoadedVersions(repository, allow_python=allow_python)
        self._recorder = recorder
        self._sessions: dict[str, Session] = {}
        self._scheduled: list[Batcher] = []

    def attach(self, post: Callable[..., object]) -> None:
        """Let slow models run in worker threads; ``post`` makes a call on the loop thread. Before, all run inline."""
        self.versions.attach(post)

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

    def open(self, loaded: LoadedVersion, options: SessionOptions, sink: Sink) -> Session:
        """Begin a session. It stays on this version, whatever is published before it ends.

        Raises:
            InvalidError: the options ask for exploration, and the policy has no advice head.

        """
        if options.exploration is not None and loaded.head is None:
            raise InvalidError(f"{loaded.stored} has no advice head ([head] in policy.toml), so it cannot explore")
        view = _view(loaded.stored.policy, options)
        recording_sink = None if self._recorder is None else RecordingSink(self._recorder.opened(view), sink)
        session = Session(view, loaded, sink, self, recording_sink)
        self._sessions[view.id] = session
        loaded.begin()
        return session

    def forget(self, session: Session) -> None:
        """End ``session``; a second call does nothing."""
        if self._sessions.pop(session.view.id, None) is not None:
            session.end()
            self.versions.release(session.loaded)

    def report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge) -> None:
        """Record the outcome of a session that is open or over; see `Recorder.report`.

        Raises:
            UnsupportedError: this server records nothing.

        """
        if self._recorder is None:
            raise UnsupportedError("this server keeps no ledger; its operator asks for one with --ledger PATH")
        self._recorder.report(session_id, outcome, acknowledge)

    def schedule(self, batcher: Batcher) -> None:
        """Let ``batcher`` run at the end of the turn."""
        self._scheduled.append(batcher)

    def flush(self) -> int:
        """End the turn: run the scheduled batchers, until none is left; give the number of decisions."""
        count = 0
        while self._scheduled:
            scheduled, self._scheduled = self._scheduled, []
            for batcher in scheduled:
                count += batcher.run()
        return count

    def close(self) -> None:
        """Free all models."""
        self.versions.close()


def _view(policy: PolicyVersion, options: SessionOptions) -> SessionView:
    view = SessionView(uuid.uuid4().hex, policy, options.context, dict(options.options), dict(options.labels))
    if options.exploration is not None:
        view.exploration = options.exploration
        view.generator = np.random.default_rng(options.exploration.seed)
    return view
