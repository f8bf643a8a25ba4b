"""A task without a compiler, of which each unit has one decision, and one compile can take one alternative for all."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.task import Asking, Case

UNITS = 30

COSTS = ((100.0, 80.0, 100.0), (100.0, 97.0, 90.0), (100.0, 100.0, 100.0))
"""The cost of each alternative for a unit of each kind: the second is best in sum, and the third for one kind."""


class Picks:
    """Units of three kinds. The policy sees the kind if ``seen`` is ``yes``.

    Args:
        seen: whether the features tell kinds apart.
        failing: the name of a case that does not compile with the last alternative.

    """

    name = "picks"
    features = tuple(TensorSpec(name, ElementType.INT64) for name in ("kind", "noise"))
    advice = TensorSpec("pick", ElementType.INT64)
    choices = 3
    default = ""

    def __init__(self, seen: str = "yes", failing: str = "") -> None:
        self._seen = seen == "yes"
        self._failing = failing

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give 40 cases of 10 projects; see `Task`."""
        del corpus
        return [Case(f"project {n % 10}/{n}", f"project {n % 10}") for n in range(40)]

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Ask about each unit of a case."""
        assert asking is not None
        picks = []
        try:
            with open_runner(
                asking.server, policy=asking.policy, features=self.features, advice=self.advice, labels=asking.labels,
                timeout=60,
            ) as runner:  # fmt: skip
                for unit, kind in enumerate(_kinds(case)):
                    runner.context(f"unit {unit}")
                    runner["kind"], runner["noise"] = kind * self._seen, unit
                    picks.append(int(runner.evaluate()))
                runner.report("ok")
                return _result(case, picks, [runner.session_id])
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))

    def run_with(self, case: Case, choice: int) -> CompileResult:
        """Give the costs of one alternative for all units."""
        if case.name == self._failing and choice == self.choices - 1:
            return CompileResult.failed("it does not compile so")
        return _result(case, [choice] * UNITS, [])

    def end(self) -> None:
        """There is nothing to end."""

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the unit of each decision."""
        del observations
        return list(contexts)


def _kinds(case: Case) -> list[int]:
    number = int(case.name.rpartition("/")[2])
    return [(unit + number) % len(COSTS) for unit in range(UNITS)]


def _result(case: Case, picks: Sequence[int], sessions: Sequence[str]) -> CompileResult:
    costs = [COSTS[kind][pick] for kind, pick in zip(_kinds(case), picks, strict=True)]
    by_unit = {f"unit {unit}": cost for unit, cost in enumerate(costs)}
    return CompileResult(by_unit, sessions, {"bytes": sum(costs)})
