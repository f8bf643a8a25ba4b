"""A connection that lets somebody listen to every decision that goes over another one."""

from collections.abc import Callable

from policybridge_client.connection import ClientSession, Connection
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values

Listener = Callable[[Values, Values], None]
"""Takes an observation and its advice, one record each, that are overwritten after the call."""


class ListeningConnection:
    """Passes everything on to ``connection``, and each decision to ``listener``; see `Connection`."""

    def __init__(self, connection: Connection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "ListeningSession":
        """Open a session that is listened to."""
        return ListeningSession(self._connection.open(policy, signature, options), self._listener)

    def check(self) -> None:
        """Find out whether the server can be reached."""
        self._connection.check()

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report what a compilation came to."""
        self._connection.report_outcome(session_id, outcome)

    def close(self) -> None:
        """Close the connection listened to."""
        self._connection.close()


class ListeningSession:
    """A session of a `ListeningConnection`; see `ClientSession`."""

    def __init__(self, session: ClientSession, listener: Listener) -> None:
        self._session = session
        self._listener = listener

    @property
    def id(self) -> str:
        """The server's id of the session."""
        return self._session.id

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self._session.policy

    @property
    def log_probability(self) -> float | None:
        """The log-probability with which the last advice was chosen."""
        return self._session.log_probability

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision, and tell the listener of it."""
        advice = self._session.evaluate(observation)
        self._listener(observation, advice)
        return advice

    def context(self, name: str) -> None:
        """Say what the following observations belong to."""
        self._session.context(name)

    def report(self, outcome: Outcome) -> None:
        """Report what the compilation came to."""
        self._session.report(outcome)

    def close(self) -> None:
        """End the session."""
        self._session.close()
