"""From the observations of a batch to advice or errors, one for each, whatever the model does."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from policybridge_serdes import Signature, Values, join
from policybridge_serdes.errors import PolicyBridgeError, PolicyFailedError
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import Batch, Model, SessionView
from policybridge_server.engine.binding import Binding
from policybridge_server.engine.probe import Probe


class Sink(Protocol):
    """Where a session's answers go. Called on the loop thread, in the order of the observations."""

    def answer(self, advice: Values) -> None:
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


Result = Values | PolicyBridgeError


class Evaluator:
    """Runs one model for clients of one signature; raises nothing."""

    def __init__(self, model: Model, binding: Binding, signature: Signature, probe: Probe) -> None:
        self._model = model
        self._binding = binding
        self._probe = probe
        self._features = signature.features
        self._advice = signature.advice_layout
        self._is_float = signature.advice.type.dtype.kind == "f"
        self._as_asked = self._advice.dtype == binding.advice.dtype

    def results(self, decisions: Sequence[Decision]) -> list[Result]:
        """Give the advice or the error of each decision, in order."""
        most = self._probe.most
        results: list[Result] = []
        for start in range(0, len(decisions), most):
            results += self._batch(decisions[start : start + most])
        return results

    def _batch(self, decisions: Sequence[Decision]) -> Sequence[Result]:
        try:
            advice = self._evaluate(decisions)
        except Exception as error:
            if len(decisions) == 1:
                return [_failure(error)]
            # One observation may have spoilt the batch: the others get the answer that they would have got alone.
            return [result for decision in decisions for result in self._batch([decision])]
        rows = [advice[row : row + 1] for row in range(len(decisions))]
        return [self._without_nan(row) for row in rows] if self._is_float else rows

    def _evaluate(self, decisions: Sequence[Decision]) -> Values:
        rows = [decision.row for decision in decisions]
        rows += rows[-1:] * (self._probe.least - len(rows))
        values = self._binding.move(join(self._features, rows))
        sessions = [decision.session for decision in decisions]
        advice = self._model.evaluate(Batch(values, sessions, self._binding.advice))
        return advice if self._as_asked else _renamed(advice, self._advice.dtype)

    def _without_nan(self, row: Values) -> Result:
        (name,) = row.dtype.names or ()
        if np.isnan(_elements(row[name])).any():
            return PolicyFailedError(f"the policy gave NaN for {self._advice.specs[0]}")
        return row


def _elements(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return column[0] if column.dtype.hasobject else column


def _renamed(advice: Values, dtype: np.dtype[np.void]) -> Values:
    # The same bytes under the client's name and shape, [1] for a scalar say; references need a copy.
    return advice.astype(dtype) if dtype.hasobject else advice.view(dtype)


def _failure(error: Exception) -> PolicyBridgeError:
    if isinstance(error, PolicyFailedError):
        return error
    return PolicyFailedError(f"the policy failed: {type(error).__name__}: {error}")
