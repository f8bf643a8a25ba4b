"""The engine inside the caller's process: the client's ``inprocess:REPOSITORY``, without a server or a wire."""

import threading
from pathlib import Path

from policybridge_core.closing import Closing
from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError, UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.repository import Repository
from policybridge_server.repository.guessing import say_empty


class EmbeddedConnection(Closing):
    """A `Connection` of the client to an engine in this process; usable from several threads.

    Python policies are allowed, because the caller's own process runs them.

    Args:
        repository: folder of policies.
        timeout: not used: a call takes as long as the model takes.

    Raises:
        NotFoundError: the folder does not exist.

    """

    def __init__(self, repository: str, timeout: float = 0.0) -> None:  # noqa: ARG002
        self._engine = Engine(Repository([Path(repository)]), allow_python=True)
        self._lock = threading.Lock()

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "EmbeddedSession":
        """Open a session; load the version if it is not loaded yet.

        Raises:
            PolicyBridgeError: the policy is unknown, its artifact cannot be loaded, or the signature does not fit.

        """
        with self._lock:
            return EmbeddedSession(self._engine, self._load(policy), signature, options, self._lock)

    def _load(self, policy: PolicyReference) -> LoadedVersion:
        try:
            return self._engine.load(policy)
        except NotFoundError as error:
            empty = say_empty(self._engine.repository.folders[0])
            if empty is None:
                raise
            raise NotFoundError(f"{error}; {empty}") from error

    def check(self) -> None:
        """Do nothing: an engine in this process can always be reached."""

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: an engine in this process records nothing."""
        raise UnsupportedError("there is no ledger without a server; serve with --ledger and connect to that server")

    def close(self) -> None:
        """Free the models."""
        with self._lock:
            self._engine.close()


class EmbeddedSession(Closing):
    """A session on an engine in this process, made by ``EmbeddedConnection.open``; also the sink of its advice.

    Attributes:
        log_probability: that with which the last advice was chosen; ``None`` in a session that does not explore.

    """

    def __init__(
        self,
        engine: Engine,
        loaded: LoadedVersion,
        signature: Signature,
        options: SessionOptions,
        lock: threading.Lock,
    ) -> None:
        self.log_probability: float | None = None
        self._engine = engine
        self._result: Values | PolicyBridgeError = PreconditionError("no observation was submitted")
        self._lock = lock
        self._open = True
        self._session = engine.open(loaded, options, self)
        try:
            self._session.bind(signature)
        except PolicyBridgeError:
            self._session.close()
            raise

    @property
    def id(self) -> str:
        """The engine's id of this session."""
        return self._session.view.id

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self._session.policy

    @property
    def decides(self) -> tuple[str, ...]:
        """The kinds of decisions that the policy declares."""
        return self._session.decides

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision.

        Raises:
            PolicyFailedError: there is no advice; this ends the session.
            PreconditionError: the session has ended.

        """
        if not self._open:
            raise PreconditionError("the session is over")
        with self._lock:
            self._session.submit(observation)
            self._engine.flush()
        if isinstance(self._result, PolicyBridgeError):
            self.close()
            raise self._result
        return self._result

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Keep the advice for `evaluate`."""
        self._result, self.log_probability = advice, log_probability

    def fail(self, error: PolicyBridgeError) -> None:
        """Keep the error for `evaluate`."""
        self._result = error

    def context(self, name: str) -> None:
        """Name the function or module that the following observations belong to."""
        self._session.context(name)

    def report(self, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse, because an engine in this process records nothing, and end the session as every connection does."""
        self.close()
        raise UnsupportedError("there is no ledger without a server; serve with --ledger and connect to that server")

    def close(self) -> None:
        """End the session; a second call does nothing."""
        self._open = False
        with self._lock:
            self._session.close()
