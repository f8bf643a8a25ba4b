"""A task without a compiler, in which two choices in a row come to one cost."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.task import Asking, Case


class Sums:
    """Two numbers from 0 to 4 are to add up to a third one, and the cost is how far they are from it; by default 0."""

    name = "sums"
    features = (
        *(TensorSpec(name, ElementType.INT64) for name in ("wanted", "default")),
        TensorSpec("before", ElementType.INT64, (2,)),
    )
    advice = TensorSpec("number", ElementType.INT64)
    choices = 5
    default = "default"
    reports = True

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give 40 cases; see `Task`."""
        del corpus
        return [Case(str(number), str(number)) for number in range(40)]

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Choose for each of the sums of a case."""
        assert asking is not None, "there is a default"
        explored = None if asking.exploration is None else asking.exploration.of_module(case.name)
        costs = {}
        try:
            with open_runner(
                asking.server, policy=asking.policy, features=self.features, advice=self.advice, labels=asking.labels,
                exploration=explored, timeout=60,
            ) as runner:  # fmt: skip
                for wanted in range(9):
                    runner.context(f"sum {wanted}")
                    chosen: list[int] = []
                    for step in range(2):
                        runner["wanted"], runner["default"] = wanted, 0
                        runner["before"] = [step, sum(chosen)]
                        chosen.append(int(runner.evaluate()))
                    costs[f"sum {wanted}"] = float(abs(sum(chosen) - wanted))
                if self.reports:
                    runner.report("ok")
                return CompileResult(costs, [runner.session_id], {"distance": sum(costs.values())})
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))

    def end(self) -> None:
        """There is nothing to end."""

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the sum that each number is of."""
        del observations
        return list(contexts)
