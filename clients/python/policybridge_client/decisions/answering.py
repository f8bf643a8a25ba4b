"""Answers from a section of a store, without a server."""

from collections.abc import Mapping

from policybridge_client.answers import Answers
from policybridge_client.decisions.keys import FeaturesKeys
from policybridge_core.errors import InvalidError
from policybridge_serdes import SessionOptions, Signature, Values

_DEFAULT = "inlining_default"


class StoreAnswers(Answers):
    """Answers with decisions by sequence; with LLVM's own for every other call.

    Args:
        decisions: whether to inline, by the decision's name.

    Attributes:
        applied: the names of the decisions that were asked for.

    """

    def __init__(self, decisions: Mapping[str, bool]) -> None:
        self.applied: set[str] = set()
        self._decisions = decisions

    def begin(self, signature: Signature, options: SessionOptions) -> None:
        """Begin a module: the occurrences of each key count from 0.

        Raises:
            InvalidError: LLVM's own decision is not among the features.

        """
        if _DEFAULT not in signature.features.by_name:
            raise InvalidError(
                f"the compiler sends no feature {_DEFAULT}, the answer to calls without a decision in the store"
            )
        super().begin(signature, options)
        self._keys = FeaturesKeys(signature)

    def evaluate(self, observation: Values) -> Values:
        """Return the decision about the next call, or LLVM's own."""
        key = self._keys.next(observation.tobytes())
        inline = self._decisions.get(key)
        if inline is None:
            inline = bool(observation[_DEFAULT].any())
        else:
            self.applied.add(key)
        return self.advice(inline)
