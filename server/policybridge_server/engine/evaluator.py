"""From the observations of a batch to one result each: advice or an error. A failing model raises nothing here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.authors import interrupts
from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Layout, Signature, Values, join
from policybridge_server.backends.contract import Batch, Model
from policybridge_server.engine.binding import Binding, with_rank
from policybridge_server.engine.decision import Decision, Result
from policybridge_server.engine.failures import Failures
from policybridge_server.engine.head import Head
from policybridge_server.engine.probe import Probe
from policybridge_server.engine.worker import AbandonedError


class Evaluator:
    """Runs a version's model for clients of one signature; an exception of the model becomes an error for its client.

    It raises only exceptions that are not the model's: `AbandonedError` in an abandoned worker, and the user's Ctrl-C.
    """

    def __init__(
        self, head: Head | None, binding: Binding, signature: Signature, probe: Probe, failures: Failures
    ) -> None:
        self._head = head
        self._failures = failures
        self._binding = binding
        self._probe = probe
        self._features = signature.features
        self._advice = signature.advice_layout
        self._mask = None if head is None else head.mask_of(signature.features)
        self._model_layout = binding.advice if head is None else head.scores
        self._is_float = signature.advice.type.dtype.kind == "f"
        self._same_layout = _has_same_layout(self._advice, binding.advice)

    def results(self, model: Model, decisions: Sequence[Decision]) -> list[Result]:
        """Give the advice or the error of each decision, in order."""
        most = self._probe.most
        results: list[Result] = []
        for start in range(0, len(decisions), most):
            results += self._batch(model, decisions[start : start + most])
        return results

    def runs(self, count: int) -> int:
        """Give the number of runs of the model that ``count`` decisions take."""
        return -(-count // self._probe.most)

    def _batch(self, model: Model, decisions: Sequence[Decision]) -> Sequence[Result]:
        try:
            return self._answers(model, decisions)
        except BaseException as error:
            # A policy may raise that class too, and on the loop thread it would end the server: ask whether it is true.
            abandoned = isinstance(error, AbandonedError) and getattr(model, "abandoned", False)
            if abandoned or interrupts(error):
                raise
            if len(decisions) == 1:
                return [self._failures.add(error)]
            # One observation may be the cause: evaluate each alone, so that the others get their advice.
            return [result for decision in decisions for result in self._batch(model, [decision])]

    def _answers(self, model: Model, decisions: Sequence[Decision]) -> Sequence[Result]:
        values, given = self._evaluate(model, decisions)
        if self._head is not None:
            return self._chosen(self._head, decisions, values, given)
        advice = given if self._same_layout else _renamed(given, self._advice)
        rows = [advice[row : row + 1] for row in range(len(decisions))]
        return [self._without_nan(row) for row in rows] if self._is_float else [(row, None) for row in rows]

    def _evaluate(self, model: Model, decisions: Sequence[Decision]) -> tuple[Values, Values]:
        rows = [decision.row for decision in decisions]
        rows += rows[-1:] * (self._probe.least - len(rows))
        values = join(self._features, rows)
        sessions = [decision.session for decision in decisions]
        return values, model.evaluate(Batch(self._binding.move(values), sessions, self._model_layout))

    def _chosen(self, head: Head, decisions: Sequence[Decision], values: Values, scores: Values) -> list[Result]:
        count = len(decisions)
        mask = None if self._mask is None else values[self._mask][:count]
        results = head.choose(scores[:count], mask, [decision.session for decision in decisions])
        return results if self._same_layout else [_renamed_result(result, self._advice) for result in results]

    def _without_nan(self, row: Values) -> Result:
        (name,) = row.dtype.names or ()
        if np.isnan(_elements(row[name])).any():
            return PolicyFailedError(f"the policy gave NaN for {self._advice.specs[0]}")
        return row, None


def _elements(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return column[0] if column.dtype.hasobject else column


def _has_same_layout(one: Layout, other: Layout) -> bool:
    # The type of a record does not have the shapes of tensors that vary.
    ranks = [[len(spec.shape) for spec in layout.specs] for layout in (one, other)]
    return one.dtype == other.dtype and ranks[0] == ranks[1]


def _renamed(advice: Values, layout: Layout) -> Values:
    # The same bytes under the client's name and shape, such as [1] for a scalar. Object references cannot be viewed.
    if layout.fixed:
        return advice.view(layout.dtype)
    (spec,), renamed = layout.specs, advice.astype(layout.dtype)
    for row, array in enumerate(renamed[spec.name]):
        renamed[spec.name][row] = with_rank(array, len(spec.shape))
    return renamed


def _renamed_result(result: Result, advice: Layout) -> Result:
    return (_renamed(result[0], advice), result[1]) if isinstance(result, tuple) else result
