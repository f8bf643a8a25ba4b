"""What comes of a decision, and where it goes."""

from typing import NamedTuple, Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView

Result = tuple[Values, float | None] | PolicyBridgeError
"""The advice and, where the session explores, the log-probability with which it was chosen; or why there is none."""


class Sink(Protocol):
    """Where a session's answers go. Called on the loop thread, in the order of the observations."""

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Take the advice: one record of the client's advice spec."""
        ...

    def fail(self, error: PolicyBridgeError) -> None:
        """Take the news that there is no advice; the session is over."""
        ...


class Decision(NamedTuple):
    """One observation that waits for its advice."""

    session: SessionView
    row: Row
    sink: Sink
