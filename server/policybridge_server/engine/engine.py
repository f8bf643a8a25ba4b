"""The engine: sessions on loaded versions, and the end of each turn."""

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
from policybridge_server.engine.recorder import Recorder, RecordingSink, Reported
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository


class Session:
    """One compilation's conversation with one version. Made by ``Engine.open``; for the loop thread."""

    def __init__(
        self, view: SessionView, loaded: LoadedVersion, sink: Sink, engine: "Engine", tap: RecordingSink | None = None
    ) -> None:
        self.view = view
        self.loaded = loaded
        self._asker = sink
        self._sink = tap or sink
        self._tap = tap
        self._engine = engine
        self._batcher: Batcher | None = None

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self.loaded.stored.policy

    def bind(self, signature: Signature) -> tuple[str, ...]:
        """Fix what observations and advice look like from here on; give the features that are ignored.

        Raises:
            InvalidError: the signature does not fit the policy's.

        """
        batcher = self.loaded.batcher(signature, self._engine.due)
        self._unbind()
        self._batcher = batcher
        batcher.sessions += 1
        if self._tap is not None:
            self._tap.recording.bound(signature)
        return self._batcher.ignored

    def _unbind(self) -> None:
        if self._batcher is not None:
            self._batcher.sessions -= 1

    def submit(self, row: Row) -> None:
        """Ask for one decision; the sink gets the answer when the turn ends, or when the worker has it.

        Raises:
            PreconditionError: no signature is bound yet.

        """
        if self._batcher is None:
            raise PreconditionError("an observation came before the signature of its features")
        if self._tap is not None:
            self._tap.asked(row)
        self._batcher.submit(Decision(self.view, row, self._sink))

    def context(self, name: str) -> None:
        """Name the function (or module) that the following observations belong to."""
        self.view.context = name

    def leave_unrecorded(self) -> None:
        """Keep nothing of this session; before its signature is bound."""
        self._sink, self._tap = self._asker, None

    def report(self, outcome: Outcome | None, reported: Reported) -> None:
        """Keep an outcome (``None``: what there is so far); see `Engine.report`."""
        self._engine.report(self.view.id, outcome, reported)

    @property
    def recorded(self) -> bool:
        """Whether a recorder listens."""
        return self._tap is not None

    def close(self) -> None:
        """End the session; twice is once."""
        self._engine.forget(self)

    def end(self) -> None:
        """Tell model and recorder of the end; for the engine, once."""
        self._unbind()
        self.loaded.end(self.view)
        if self._tap is not None:
            self._tap.recording.closed()


class Engine:
    """Loaded versions and live sessions.

    Args:
        repository: where policies are found.
        allow_python: whether artifacts that are code may run.
        recorder: keeps the sessions; ``None`` for nobody.

    """

    def __init__(self, repository: Repository, *, allow_python: bool, recorder: Recorder | None = None) -> None:
        self.repository = repository
        self.versions = LoadedVersions(repository, allow_python=allow_python)
        self._recorder = recorder
        self._sessions: dict[str, Session] = {}
        self._due: list[Batcher] = []

    def attach(self, post: Callable[..., object]) -> None:
        """Say how a worker hands a call over to the loop thread; without, every model runs inline."""
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
        """Load the version that ``reference`` means now, unless it is; blocks, and may run in any one thread.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        return self.versions.load(reference)

    def open(self, loaded: LoadedVersion, options: SessionOptions, sink: Sink) -> Session:
        """Begin a session on a loaded version; it stays there whatever is published meanwhile.

        Raises:
            InvalidError: it asks for exploration, and the policy has no advice head.

        """
        if options.exploration is not None and loaded.head is None:
            raise InvalidError(f"{loaded.stored} has no advice head ([head] in policy.toml), so it cannot explore")
        view = _view(loaded.stored.policy, options)
        tap = None if self._recorder is None else RecordingSink(self._recorder.opened(view), sink)
        session = Session(view, loaded, sink, self, tap)
        self._sessions[view.id] = session
        loaded.begin()
        return session

    def forget(self, session: Session) -> None:
        """End ``session``; twice is once."""
        if self._sessions.pop(session.view.id, None) is not None:
            session.end()
            self.versions.release(session.loaded)

    def report(self, session_id: str, outcome: Outcome | None, reported: Reported) -> None:
        """Keep the outcome of a session, live or over; ``reported`` is told when nothing of it can be lost.

        Raises:
            UnsupportedError: nothing is recorded here.

        """
        if self._recorder is None:
            raise UnsupportedError("this server keeps no ledger; its operator asks for one with --ledger PATH")
        self._recorder.report(session_id, outcome, reported)

    def due(self, batcher: Batcher) -> None:
        """Let ``batcher`` run when the turn ends."""
        self._due.append(batcher)

    def flush(self) -> int:
        """End the turn: run what is due, and what becomes due by the answers; give how many decisions there were."""
        count = 0
        while self._due:
            due, self._due = self._due, []
            for batcher in due:
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
