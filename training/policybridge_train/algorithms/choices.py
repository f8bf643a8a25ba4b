"""Choices: draw choices at random, fit trees to their costs, choose the cheapest, and try choices around it.

For tasks that choose among several things beside a default, and whose units tell their cost. The first iteration draws
every choice as likely; each further one follows the newest version, but for a part of the decisions.
"""

from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from policybridge_core.errors import InvalidError
from policybridge_serdes import Exploration
from policybridge_train.learning.choosing import Costs, Decisions, config, rows_of, to_onnx
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training
from policybridge_train.learning.trees import TreeSettings
from policybridge_train.tasks.task import Asking, Case
from policybridge_train.trajectories.trajectory import Collecting, Trajectory

_DESCRIPTION: Final = "Trees that predict the cost of each choice, fitted to tried choices"
_MOST: Final = 1e9
"""Costs are not clipped: a task gives them in a unit that no unit can outweigh the others in, such as a logarithm."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        iterations: most versions.
        draws: how often each case is compiled in each iteration.
        epsilon: the part of the decisions that chance draws, from the second iteration on.
        least: what another choice must save over the default, in the unit of the task's costs.
        trees: in the policy, for each choice.
        leaves: of a tree.

    """

    iterations: Annotated[int, Meta(ge=1)] = 4
    draws: Annotated[int, Meta(ge=1)] = 4
    epsilon: Annotated[float, Meta(gt=0, le=1)] = 0.3
    least: Annotated[float, Meta(gt=0)] = 0.05
    trees: Annotated[int, Meta(ge=1)] = 200
    leaves: Annotated[int, Meta(ge=2)] = 15


def train(training: Training, settings: Settings) -> None:
    """Train until the iterations or the time are at their end."""
    learner = _Learner(training, settings)
    done = training.record.iterations()
    last = done[-1] if done else learner.publish(0)
    while last.number < settings.iterations and not training.over:
        learner.collect(last)
        last = learner.publish(last.number + 1)


class _Learner:
    def __init__(self, training: Training, settings: Settings) -> None:
        task = training.task
        count = getattr(task, "choices", 0)
        scalar = task.advice.fixed and task.advice.count == 1 and task.advice.type.dtype.kind == "i"
        if not (count > 1 and scalar and task.default):
            raise InvalidError(
                f"the algorithm choices needs a task with a default whose advice is one of some choices: an attribute "
                f"`choices` says of how many; {task.name} is none"
            )
        self._training, self._settings, self._choices = training, settings, int(count)
        names = [spec.name for spec in task.features]
        self._columns = sum(spec.count for spec in task.features)
        self._default = sum(spec.count for spec in task.features[: names.index(task.default)])

    def publish(self, number: int) -> Iteration:
        """Fit to all that was tried before an iteration, publish and validate."""
        training, settings = self._training, self._settings
        parts = [Decisions.unpacked(data, self._columns) for _, _, data in training.record.pieces(number)]
        known = Decisions.joined(parts, self._columns)
        # Each row is one of few trials of a decision, so that small leaves would learn chance.
        fitting = TreeSettings(settings.trees, settings.leaves, least=20, most=_MOST, seed=training.seed)
        costs = Costs.fitted(known, self._choices, fitting)
        model = to_onnx(costs, self._default, settings.least)
        text = config(training.task.features, training.task.advice, _DESCRIPTION)
        version = training.publish({"model.onnx": model}, text)
        return training.finish(number, version, training.validate(version))

    def collect(self, last: Iteration) -> None:
        """Try choices in all training cases; what an interrupted run has tried is not tried again."""
        training = self._training
        waiting = [case for case in training.training if not training.record.has(last.number, case.name)]
        for number, found in enumerate(training.collector.each(lambda case: self._tried(case, last), waiting), 1):
            training.record.keep(last.number, waiting[number - 1].name, self._settings.draws + 1, found.packed())
            if number % 20 == 0 or number == len(waiting):
                training.say(f"iteration {last.number + 1}: {number} of {len(waiting)} cases")
        training.compiles = max(training.compiles, training.record.compiles())

    def _tried(self, case: Case, last: Iteration) -> Decisions:
        """Compile a case by default and with choices that are drawn."""
        training, first = self._training, self._training.record.iterations()[0]
        usual = training.collector.one(case, Collecting(training.asking(first.version, purpose="training")))
        parts = []
        for draw in range(self._settings.draws if usual.result.ok else 0):
            trajectory = training.collector.one(case, Collecting(self._exploring(last, draw)))
            parts += self._learnt(trajectory, usual)
        return Decisions.joined([*self._learnt(usual, usual), *parts], self._columns)

    def _exploring(self, last: Iteration, draw: int) -> Asking:
        seed = (self._training.seed << 32) + last.number * self._settings.draws + draw
        epsilon = self._settings.epsilon if last.number else 1.0
        return self._training.asking(last.version, "training", Exploration(seed, epsilon=epsilon))

    def _learnt(self, trajectory: Trajectory, usual: Trajectory) -> list[Decisions]:
        """Give the decisions of each unit that has a cost in both compilations."""
        if not len(trajectory):
            return []
        rows = rows_of(trajectory.observations, self._training.task.features)
        units = np.array(trajectory.units, object)
        found = []
        for unit in dict.fromkeys(trajectory.units):
            if unit not in trajectory.result.costs or unit not in usual.result.costs:
                continue
            indices = np.flatnonzero(units == unit)
            cost = trajectory.result.costs[unit] - usual.result.costs[unit]
            ends = np.arange(len(indices)) == len(indices) - 1
            costs = np.full(len(indices), cost, np.float32)
            found.append(Decisions(rows[indices], trajectory.advice[indices].astype(np.int64), costs, ends))
        return found
