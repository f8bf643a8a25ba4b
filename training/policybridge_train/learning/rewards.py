"""What decisions are worth: how the cost of what they touched differs from the compiler's own."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from policybridge_train.learning.rollout import Rollout
from policybridge_train.tasks.inlined import Call, Inlined
from policybridge_train.tasks.task import names_in_hex

Reward = Literal["function", "module"]
"""Whether a decision is credited with the functions that it touched, or with the whole module."""

_CALLEE: Final = "callee"


def touched(rollout: Rollout) -> list[frozenset[str]]:
    """Give the units that each decision can change.

    These are its own unit, those into which that is inlined by the decisions of this compilation, and the callee, which
    may no longer be emitted. A task that tells no callee has the first alone.
    """
    callees = _callees(rollout)
    if not callees:
        return [frozenset([unit]) for unit in rollout.units]
    pairs = list(zip(rollout.units, callees, strict=True))
    calls = (Call(unit, callee, bool(advice)) for (unit, callee), advice in zip(pairs, rollout.advice, strict=True))
    inlined = Inlined(calls)
    return [inlined.above(unit) | {callee} for unit, callee in pairs]


def changes(rollout: Rollout, default: Mapping[str, float], reward: Reward) -> npt.NDArray[np.float64]:
    """Give for each decision by how much what it is credited with costs more than by default; shape [n]."""
    now = rollout.ran.costs
    difference = {unit: now.get(unit, 0.0) - default.get(unit, 0.0) for unit in now.keys() | default.keys()}
    if reward == "module":
        return np.full(len(rollout), sum(difference.values()))
    known: dict[frozenset[str], float] = {}
    sets = touched(rollout)
    for each in sets:
        if each not in known:
            known[each] = sum(difference.get(unit, 0.0) for unit in each)
    return np.array([known[each] for each in sets], np.float64)


def _callees(rollout: Rollout) -> Sequence[str]:
    if _CALLEE not in (rollout.observations.dtype.names or ()):
        return []
    return names_in_hex(rollout.observations, _CALLEE)
