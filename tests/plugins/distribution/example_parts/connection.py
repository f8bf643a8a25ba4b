"""A connection to no server: ``always:NUMBER`` answers every observation with the number."""

import numpy as np

from policybridge_core.closing import Closing
from policybridge_core.errors import UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values


class AlwaysConnection(Closing):
    """Opens sessions that answer ``target``."""

    def __init__(self, target: str, timeout: float) -> None:
        self._number = int(target)

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "AlwaysSession":
        """Open a session."""
        return AlwaysSession(PolicyVersion(policy.name, 1, ""), signature, self._number)

    def check(self) -> None:
        """Nothing can be out of reach."""

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Refuse."""
        raise UnsupportedError("there is no ledger without a server")

    def close(self) -> None:
        """Give nothing back."""


class AlwaysSession(Closing):
    """Answers every observation with one number."""

    id = "always"
    decides = ()
    log_probability: float | None = None

    def __init__(self, policy: PolicyVersion, signature: Signature, number: int) -> None:
        self.policy = policy
        self._advice: Values = np.zeros(1, signature.advice_layout.dtype)
        self._advice[signature.advice.name] = number

    def evaluate(self, observation: Values) -> Values:
        """Answer."""
        return self._advice

    def context(self, name: str) -> None:
        """Ignore what the following observations belong to."""

    def report(self, outcome: Outcome) -> None:
        """Refuse."""
        raise UnsupportedError("there is no ledger without a server")

    def close(self) -> None:
        """End the session."""
