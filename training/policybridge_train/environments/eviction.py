"""The environment of eviction: the action is the value to evict; the reward is the saved cost of spills."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import EzPickle

from policybridge_client.llvm.tasks import EVICT, Task
from policybridge_core.errors import InvalidError
from policybridge_serdes import Signature, Values
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.spills import remark_arguments, spill_costs
from policybridge_train.environments.compilation import WaitingCompilation
from policybridge_train.environments.environment import CompilingEnvironment
from policybridge_train.environments.objective import REMARKS, Judgement, Setting

Costs = Mapping[str, float]
"""The weighted cost of spills, reloads and copies by function; see `spill_costs`."""


class SpillObjective:
    """The cost of spills of each function, as LLVM itself weighs it."""

    task: Task = EVICT

    def remarks(self, file: Path) -> Sequence[str]:
        """Give the arguments for LLVM's remarks of its register allocator."""
        return remark_arguments(file)

    def actions(self, signature: Signature) -> int:
        """Give the number of positions; the last one means to evict nothing."""
        mask = signature.features.by_name.get("mask")
        if mask is None:
            raise InvalidError("LLVM sends no feature mask, without which no eviction can be checked")
        return mask.count

    def legal(self, observation: Values) -> npt.NDArray[np.int8]:
        """Allow those positions whose mask is not 0; LLVM crashes on any other."""
        mask: npt.NDArray[np.int8] = (observation["mask"].reshape(-1) != 0).astype(np.int8)
        return mask

    def by_default(self, setting: Setting, module: Module) -> Costs:
        """Compile with LLVM's own decisions."""
        with closing(setting.compilation(None, module, self.remarks)) as compilation:
            compilation.finish()
            return spill_costs(compilation.folder / REMARKS)

    def judge(self, default: Costs, compilation: WaitingCompilation) -> Judgement:
        """Give the sum of log((default + 1) / (cost + 1)) over all functions; a decision gets its function's term.

        Ratios, not differences: costs are weighted by block frequencies, so one hot function would outweigh all others.
        """
        costs = spill_costs(compilation.folder / REMARKS)
        gains = {name: _log(default, name) - _log(costs, name) for name in {**default, **costs}}
        credit = [gains.get(context, 0.0) for context in compilation.contexts]
        told = {"spill_cost": sum(costs.values()), "default_spill_cost": sum(default.values())}
        return Judgement(math.fsum(gains.values()), credit, told)


def _log(costs: Costs, name: str) -> float:
    return math.log1p(costs.get(name, 0.0))


class Evict(CompilingEnvironment[Costs]):
    """``policybridge/Evict-v0``: the action is the position of the value to evict; the last one evicts nothing.

    The last step's reward is the sum of log((default + 1) / (cost + 1)) over all functions, where a function's cost is
    that of its spills, reloads and copies (`spill_costs`). ``info["credit"][n]`` is the term of the function in which
    decision n was made; ``spill_cost`` and ``default_spill_cost`` are the sums over the module. For the arguments and
    errors see `CompilingEnvironment`.
    """

    def __init__(self, corpus: Path | str, **arguments: Any) -> None:
        EzPickle.__init__(self, corpus, **arguments)
        super().__init__(SpillObjective(), corpus, **arguments)
