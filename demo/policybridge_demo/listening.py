"""A connection that reports every decision of another connection to a listener."""

from collections.abc import Callable, Sequence

from policybridge_client.contract import ClientSession, Connection, conclude
from policybridge_core.closing import Closing
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values

Listener = Callable[[Values, Values], None]
"""Called with an observation and its advice, one record each; they are overwritten after the call."""


class ListeningConnection(Closing):
    """Forwards all calls to ``connection``, and each decision to ``listener``; see `Connection`."""

    def __init__(self, connection: Connection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "ListeningSession":
        """Open a session whose decisions are reported to the listener."""
        return ListeningSession(self._connection.open(policy, signature, options), self._listener)

    def check(self) -> None:
        """Check that the server can be reached."""
        self._connection.check()

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of any session."""
        self._connection.report_outcome(session_id, outcome)

    def close(self) -> None:
        """Close the other connection."""
        self._connection.close()


class ListeningSession(Closing):
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
        """The version that gives the advice."""
        return self._session.policy

    @property
    def decides(self) -> Sequence[str]:
        """The kinds of decisions that the policy declares."""
        return self._session.decides

    @property
    def log_probability(self) -> float | None:
        """The log-probability with which the last advice was chosen."""
        return self._session.log_probability

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision, and report it to the listener."""
        advice = self._session.evaluate(observation)
        self._listener(observation, advice)
        return advice

    def context(self, name: str) -> None:
        """Set the context of the next observations."""
        self._session.context(name)

    def report(self, outcome: Outcome) -> None:
        """Report the outcome."""
        self._session.report(outcome)

    def conclude(self, outcome: Outcome) -> None:
        """Report the outcome, and end the session."""
        conclude(self._session, outcome)

    def close(self) -> None:
        """End the session."""
        self._session.close()
