"""The rewards of decisions: how the cost of the functions that they change differs from the baseline's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from policybridge_train.tasks.inlined import CallSite, Inlined
from policybridge_train.tasks.task import names_in_hex
from policybridge_train.trajectories.trajectory import Trajectory

Reward = Literal["function", "module"]
"""Whether a decision is credited with its own function and its callee, or with the whole module."""

_CALLEE: Final = "callee"


class Compared:
    """Two compilations of a case, of which each may emit units that the other one does not.

    Args:
        now: the cost of each unit that it emits.
        before: that of the other compilation.

    """

    def __init__(self, now: Mapping[str, float], before: Mapping[str, float]) -> None:
        self._more = {unit: now.get(unit, 0.0) - before.get(unit, 0.0) for unit in now.keys() | before.keys()}
        self._both = now.keys() & before.keys()

    def unit(self, unit: str, above: Collection[str]) -> float:
        """Give how much more a unit costs now; ``above`` are those that it was inlined into, and itself.

        Its code is in each of them, and what else they have changed by decisions of their own is left out. Where only
        one compilation emits the unit, others have decided about that. Where none does, its decisions show in the
        others alone.
        """
        if unit in self._both:
            return self._more[unit] * len(above)
        return 0.0 if unit in self._more else sum(self._more[each] for each in above if each in self._both)

    def callees(self, names: Iterable[str]) -> float:
        """Give how much more of these units is emitted now. One that both emit has changed by decisions of its own."""
        return sum(self._more[name] for name in names if name in self._more and name not in self._both)


def extra_costs(trajectory: Trajectory, default: Mapping[str, float], reward: Reward) -> npt.NDArray[np.float64]:
    """Give for each decision the cost credited to it, minus the same cost by default; shape [n]."""
    now = trajectory.result.costs
    if reward == "module":
        return np.full(len(trajectory), sum(now.values()) - sum(default.values()))
    compared, inlined = Compared(now, default), inlined_in(trajectory)
    own = {unit: compared.unit(unit, inlined.above(unit)) for unit in set(trajectory.units)}
    asked = zip(trajectory.units, callees_of(trajectory), strict=True)
    return np.array([own[unit] + compared.callees(callees) for unit, callees in asked], np.float64)


def inlined_in(trajectory: Trajectory) -> Inlined:
    """Give the functions that each function was inlined into."""
    asked = zip(trajectory.units, callees_of(trajectory), trajectory.advice, strict=True)
    return Inlined(CallSite(unit, callee, bool(yes)) for unit, callees, yes in asked for callee in callees)


def callees_of(trajectory: Trajectory) -> Sequence[Sequence[str]]:
    """Give the callee of each decision; none where the task tells none."""
    if _CALLEE not in (trajectory.observations.dtype.names or ()):
        return [()] * len(trajectory)
    return [(name,) for name in names_in_hex(trajectory.observations, _CALLEE)]
