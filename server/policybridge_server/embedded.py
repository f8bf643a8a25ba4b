"""The engine inside the caller's process: the client's ``inprocess:REPOSITORY``, without a server or a wire."""

import threading
from pathlib import Path

from policybridge_core.errors import PolicyBridgeError, PreconditionError, UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values
from policybridge_server.engine.engine import Engine, Session
from policybridge_server.repository import Repository


class EmbeddedConnection:
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
        answer = _Answer()
        with self._lock:
            session = self._engine.open(self._engine.load(policy), options, answer)
            try:
                session.bind(signature)
            except PolicyBridgeError:
                session.close()
                raise
        return EmbeddedSession(self._engine, session, answer, self._lock)

    def check(self) -> None:
        """Do nothing: an engine in this process can always be reached."""

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: an engine in this process records nothing."""
        raise UnsupportedError("there is no ledger without a server; serve with --ledger and connect to that server")

    def close(self) -> None:
        """Free the models."""
        with self._lock:
            self._engine.close()


class _Answer:
    """A sink that keeps the latest answer."""

    def __init__(self) -> None:
        self._result: Values | PolicyBridgeError = PreconditionError("no observation was submitted")
        self.log_probability: float | None = None

    def answer(self, advice: Values, log_probability: float | None) -> None:
        self._result = advice
        self.log_probability = log_probability

    def fail(self, error: PolicyBridgeError) -> None:
        self._result = error

    def fetch(self) -> Values:
        if isinstance(self._result, PolicyBridgeError):
            raise self._result
        return self._result


class EmbeddedSession:
    """A session on an engine in this process, made by ``EmbeddedConnection.open``."""

    def __init__(self, engine: Engine, session: Session, answer: _Answer, lock: threading.Lock) -> None:
        self._engine = engine
        self._session = session
        self._answer = answer
        self._lock = lock
        self._open = True

    @property
    def id(self) -> str:
        """The engine's id of this session."""
        return self._session.view.id

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self._session.policy

    @property
    def log_probability(self) -> float | None:
        """The log-probability with which the last advice was chosen; ``None`` in a session that does not explore."""
        return self._answer.log_probability

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision.

        Raises:
            PolicyFailedError: there is no advice; the session is over then.
            PreconditionError: the session is over.

        """
        if not self._open:
            raise PreconditionError("the session is over")
        with self._lock:
            self._session.submit(observation)
            self._engine.flush()
        try:
            return self._answer.fetch()
        except PolicyBridgeError:
            self.close()
            raise

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
