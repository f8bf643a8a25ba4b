"""BC-Max: imitate, for each module or function, the best of several policies; repeat with the policy learnt.

Marinov, Agarwal and Trofin, "Offline Imitation Learning from Multiple Baselines with Applications to Compiler
Optimization", 2024. Each iteration compiles its cases by the compiler's own decisions, by the newest version, and by
draws from that version. With ``reward=module`` the decisions of the smallest of these modules are imitated, as in the
paper; with ``reward=function`` those of each function from where it is smallest.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from policybridge_serdes import Exploration
from policybridge_train.learning.network import Scaling, inputs_of
from policybridge_train.learning.perceptron import LeaningNetwork
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.rewards import Reward, extra_costs
from policybridge_train.learning.training import Training
from policybridge_train.trajectories.trajectory import Trajectory

_DESCRIPTION: Final = "A small network beside the compiler's own decision, which imitates the best of several policies"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        iterations: at most so many.
        cases: compiled in each iteration, each by all policies.
        draws: policies that draw from the newest version.
        reward: ``function`` or ``module``: the unit whose best policy is imitated.
        lean: the score of the compiler's own decision at the beginning.
        temperature: of the draws.
        epochs: how often an iteration's decisions are learnt from.
        batch: decisions in a step.
        rate: of learning.

    """

    iterations: Annotated[int, Meta(ge=1)] = 10
    cases: Annotated[int, Meta(ge=1)] = 100
    draws: Annotated[int, Meta(ge=1)] = 3
    reward: Reward = "function"
    lean: Annotated[float, Meta(gt=0)] = 2.0
    temperature: Annotated[float, Meta(gt=0)] = 0.7
    epochs: Annotated[int, Meta(ge=1)] = 4
    batch: Annotated[int, Meta(ge=1)] = 256
    rate: Annotated[float, Meta(gt=0)] = 1e-3


def train(training: Training, settings: Settings) -> None:
    """Train until the iterations or the time are at their end."""
    imitation = _Imitation(training, settings)
    last = imitation.begin()
    while last.number < settings.iterations and not training.over:
        last = imitation.iterate(last)


class _Imitation:
    def __init__(self, training: Training, settings: Settings) -> None:
        self._training, self._settings = training, settings
        self._learner = LeaningNetwork(training, settings.lean, settings.rate, _DESCRIPTION)

    def begin(self) -> Iteration:
        """Continue from the record, or publish the compiler's own decisions and learn the features' scale."""
        done = self._training.record.iterations()
        if done:
            self._learner.restore(done[-1].number)
            return done[-1]
        version = self._learner.publish()
        seen = self._training.collected(
            self._training.drawn(1, self._settings.cases), self._training.asking(version, purpose="scaling")
        )
        self._learner.scaling = Scaling.of(inputs_of(seen, self._learner.features))
        return self._learner.finish(0)

    def iterate(self, last: Iteration) -> Iteration:
        """Compile by all policies, and imitate the best."""
        number, cases = last.number + 1, self._training.drawn(last.number + 1, self._settings.cases)
        first = self._training.record.iterations()[0].version
        asking = [self._training.asking(version, "training") for version in (first, last.version)]
        for draw in range(self._settings.draws):
            seed = (self._training.seed << 32) + number * self._settings.draws + draw
            drawing = Exploration(seed, self._settings.temperature)
            asking.append(self._training.asking(last.version, "training", drawing))
        policies = [self._training.collected(cases, each) for each in asking]
        chosen, which = [], []
        for trajectories in zip(*policies, strict=True):
            usable = [each for each in trajectories if each.result.ok and len(each)]
            if trajectories[0].result.ok and usable:
                chosen += usable
                which += best(usable, trajectories[0].result.costs, self._settings.reward)
        if chosen:
            self._imitate(chosen, np.concatenate(which))
        return self._learner.finish(number)

    def _imitate(self, trajectories: Sequence[Trajectory], which: npt.NDArray[np.bool_]) -> None:
        learner, settings = self._learner, self._settings
        rows = inputs_of(trajectories, learner.features)[which]
        answers = np.concatenate([each.advice != 0 for each in trajectories])[which]
        learner.network.imitate(learner.scaling(rows), learner.leaning(rows), answers, settings.epochs, settings.batch)


def best(
    trajectories: Sequence[Trajectory], default: Mapping[str, float], reward: Reward
) -> list[npt.NDArray[np.bool_]]:
    """Tell of each decision of each trajectory of a case whether it is of the best for its function or module.

    Among equals it is the first trajectory's.
    """
    found: dict[str, tuple[float, int]] = {}
    for index, trajectory in enumerate(trajectories):
        for unit, extra in zip(_units(trajectory, reward), extra_costs(trajectory, default, reward), strict=True):
            found[unit] = min(found.get(unit, (np.inf, index)), (float(extra), index))
    return [
        np.array([found[unit][1] == index for unit in _units(trajectory, reward)], bool)
        for index, trajectory in enumerate(trajectories)
    ]


def _units(trajectory: Trajectory, reward: Reward) -> Sequence[str]:
    return trajectory.units if reward == "function" else [""] * len(trajectory)
