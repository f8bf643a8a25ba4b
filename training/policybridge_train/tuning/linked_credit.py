"""Linked credit: a function of which a linker keeps one copy counts for its part in each module that has it.

Inline functions and templates are paid in each object, and once in the program; see `sharing`. So a version that is
best by object need not be best linked.
"""

from collections.abc import Mapping, Sequence

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.compiling.compilation import ByDecisions
from policybridge_train.compiling.job import compile_module, retried
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine
from policybridge_train.tasks.inline import InlineForSize, unit_of
from policybridge_train.tasks.task import Case, Task
from policybridge_train.trajectories.trajectory import Collector, Trajectory
from policybridge_train.tuning.search import TUNED, Search
from policybridge_train.tuning.sharing import Sharable, Sharing


def decided(task: InlineForSize, case: Case, decisions: Mapping[str, bool]) -> CompileResult:
    """Compile a case's module with decisions; LLVM decides about all other calls.

    Raises:
        CompileError: the compile failed.

    """
    module, decider = task.module(case), ByDecisions(decisions)
    made = retried(lambda _: compile_module(task.tool, module, decider, TUNED), task.tool.running, asks=False)
    return made.checked(module.name)


class LinkedCosts:
    """The costs of functions in a program: a function that n modules of it have costs an n-th in each.

    Args:
        shared: in how many modules of a program each shared function is, by case.

    """

    def __init__(self, shared: Mapping[str, Mapping[str, int]]) -> None:
        self._shared = shared

    @classmethod
    def counted(cls, task: Task, collector: Collector, cases: Sequence[Case]) -> "LinkedCosts":
        """Compile cases by LLVM's own decisions, and count the functions that they share.

        Raises:
            InvalidError: the cases are no objects that are linked later.

        """
        if type(task) is not InlineForSize or task.lto:
            raise InvalidError("linked=true counts objects that are linked later: train the task inline, without --lto")
        sharing = Sharing(task.programs)
        found = dict(zip(cases, collector.map(_sharable, cases), strict=True))
        for case, sharable in found.items():
            sharing.add(case.name, sharable.own)
        return cls({case.name: sharing.of(case.name, sharable) for case, sharable in found.items()})

    def of(self, case: Case) -> Mapping[str, int]:
        """Give in how many modules a case's functions are, where those are several."""
        return self._shared.get(case.name, {})

    def totals(self, trajectory: Trajectory) -> Mapping[str, float]:
        """Give the total ``linked``: the bytes of text, where a shared function counts for its part."""
        result = trajectory.result
        shared = {unit_of(name): count for name, count in self.of(trajectory.case).items()}
        twice = sum(result.costs[unit] * (1 - 1 / count) for unit, count in shared.items() if unit in result.costs)
        return {"linked": result.totals["text"] - twice}


def _sharable(_: Machine, task: Task, case: Case) -> Sharable:
    """Give a case's functions; none if LLVM cannot compile it, which the run's own compiles tell."""
    assert isinstance(task, InlineForSize)  # noqa: S101 - see `LinkedCosts.counted`
    try:
        return Sharable.of(Search.begin(decided(task, case, {})))
    except PolicyBridgeError:
        return Sharable(frozenset(), frozenset())
