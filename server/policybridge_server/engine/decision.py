"""A decision: the observation that waits, and the sink that takes the advice or the error."""

from typing import NamedTuple, Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView

Result = tuple[Values, float | None] | PolicyBridgeError
"""The advice, with the log-probability of its choice if the session explores; or an error."""


class Sink(Protocol):
    """Takes the advice of one session. Called on the loop thread, in the order of the observations."""

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Take one record of the client's advice spec; ``log_probability`` is ``None`` without exploration."""

    def fail(self, error: PolicyBridgeError) -> None:
        """Take an error instead of the advice; it ends the session."""


class Decision(NamedTuple):
    """One observation that waits for its advice."""

    session: SessionView
    row: Row
    sink: Sink
