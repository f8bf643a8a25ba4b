"""A connection that answers from a section of a store, without a server."""

from collections.abc import Mapping

import numpy as np

from policybridge_client.decisions.keys import FeaturesKeys
from policybridge_core.closing import Closing
from policybridge_core.errors import InvalidError, UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values

_NAME = "decisions"
_DEFAULT = "inlining_default"


class StoreConnection(Closing):
    """Answers with the decisions of a section by sequence; with LLVM's own for every other call.

    Args:
        answers: whether to inline, by the decision's name.

    """

    def __init__(self, answers: Mapping[str, bool]) -> None:
        self.answers = answers
        self.applied: set[str] = set()

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "StoreSession":  # noqa: ARG002
        """Begin a compilation: the occurrences of each key count from 0.

        Raises:
            InvalidError: LLVM's own decision is not among the features.

        """
        if _DEFAULT not in (signature.features.dtype.names or ()):
            raise InvalidError(
                f"the compiler sends no feature {_DEFAULT}, the answer to calls without a decision in the store"
            )
        return StoreSession(self, signature)

    def check(self) -> None:
        """Do nothing: there is no server."""

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: there is no ledger."""
        raise UnsupportedError("a store of decisions has no ledger")

    def close(self) -> None:
        """Do nothing."""


class StoreSession(Closing):
    """One compilation."""

    id = _NAME
    policy = PolicyVersion(_NAME, 1, "")
    log_probability: float | None = None

    def __init__(self, connection: StoreConnection, signature: Signature) -> None:
        self._connection = connection
        self._keys = FeaturesKeys(signature)
        self._dtype = signature.advice_layout.dtype
        self._name = signature.advice.name

    def evaluate(self, observation: Values) -> Values:
        """Return the store's decision, or LLVM's own."""
        key = self._keys.next(observation.tobytes())
        answer = self._connection.answers.get(key)
        if answer is None:
            answer = bool(observation[_DEFAULT].any())
        else:
            self._connection.applied.add(key)
        advice: Values = np.zeros(1, self._dtype)
        advice[self._name] = answer
        return advice

    def context(self, name: str) -> None:
        """Do nothing: LLVM's inliner names no context."""

    def report(self, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: there is no ledger."""
        raise UnsupportedError("a store of decisions has no ledger")

    def close(self) -> None:
        """Do nothing."""
