"""The engine: sessions on loaded versions, and the end of each turn."""

import uuid
from collections.abc import Callable

import numpy as np

from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions, Signature
from policybridge_serdes.errors import InvalidError, PreconditionError
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.lane import Lane
from policybridge_server.engine.loaded import LoadedVersion, load_version
from policybridge_server.engine.result import Decision, Sink
from policybridge_server.repository import Repository


class Session:
    """One compilation's conversation with one version. Made by ``Engine.open``; for the loop thread."""

    def __init__(self, view: SessionView, loaded: LoadedVersion, sink: Sink, engine: "Engine") -> None:
        self.view = view
        self.loaded = loaded
        self._sink = sink
        self._engine = engine
        self._lane: Lane | None = None

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self.loaded.stored.policy

    def bind(self, signature: Signature) -> tuple[str, ...]:
        """Fix what observations and advice look like from here on; give the features that are ignored.

        Raises:
            InvalidError: the signature does not fit the policy's.

        """
        self._lane = self.loaded.lane(signature, self._engine.due)
        return self._lane.ignored

    def submit(self, row: Row) -> None:
        """Ask for one decision; the sink gets the answer when the turn ends, or when the worker has it.

        Raises:
            PreconditionError: no signature is bound yet.

        """
        if self._lane is None:
            raise PreconditionError("an observation came before the signature of its features")
        self._lane.submit(Decision(self.view, row, self._sink))

    def close(self) -> None:
        """End the session; twice is once."""
        self._engine.forget(self)


class Engine:
    """Loaded versions and live sessions.

    Args:
        repository: where policies are found.
        allow_python: whether artifacts that are code may run.

    """

    def __init__(self, repository: Repository, *, allow_python: bool) -> None:
        self.repository = repository
        self._allow_python = allow_python
        self._post: Callable[..., object] | None = None
        self._loaded: dict[PolicyVersion, LoadedVersion] = {}
        self._sessions: dict[str, Session] = {}
        self._due: list[Lane] = []

    def attach(self, post: Callable[..., object]) -> None:
        """Say how a worker hands a call over to the loop thread; without, every model runs inline."""
        self._post = post

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
        return self._loaded.get(self.repository.resolve(reference).policy)

    def load(self, reference: PolicyReference) -> LoadedVersion:
        """Load the version that ``reference`` means now, unless it is; blocks, and may run in any one thread.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        stored = self.repository.resolve(reference)
        if stored.policy not in self._loaded:
            made = load_version(stored, allow_python=self._allow_python, post=self._post)
            self._loaded.setdefault(stored.policy, made)
        return self._loaded[stored.policy]

    def open(self, loaded: LoadedVersion, options: SessionOptions, sink: Sink) -> Session:
        """Begin a session on a loaded version; it stays there whatever is published meanwhile.

        Raises:
            InvalidError: it asks for exploration, and the policy has no advice head.

        """
        if options.exploration is not None and loaded.head is None:
            raise InvalidError(f"{loaded.stored} has no advice head ([head] in policy.toml), so it cannot explore")
        view = _view(loaded.stored.policy, options)
        session = Session(view, loaded, sink, self)
        self._sessions[view.id] = session
        return session

    def forget(self, session: Session) -> None:
        """End ``session``; twice is once."""
        if self._sessions.pop(session.view.id, None) is not None:
            session.loaded.end(session.view)

    def due(self, lane: Lane) -> None:
        """Let ``lane`` run when the turn ends."""
        self._due.append(lane)

    def flush(self) -> bool:
        """End the turn: run what is due, and what becomes due by the answers; say whether there was anything."""
        if not self._due:
            return False
        while self._due:
            due, self._due = self._due, []
            for lane in due:
                lane.run()
        return True

    def close(self) -> None:
        """Free all models."""
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()


def _view(policy: PolicyVersion, options: SessionOptions) -> SessionView:
    view = SessionView(uuid.uuid4().hex, policy, options.context, dict(options.options), dict(options.labels))
    if options.exploration is not None:
        view.exploration = options.exploration
        view.generator = np.random.default_rng(options.exploration.seed)
    return view
