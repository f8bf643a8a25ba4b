"""Exhaustive: compile each case with each alternative for all of its units, and fit trees to the costs.

For tasks of which each unit has one decision, and a cost that does not depend on other units: one compile for each
alternative labels all units of a case. A run has three versions:

0. the first alternative, which is the compiler itself, for all units;
1. the alternative with the least cost in sum, for all units;
2. trees that deviate from alternative 1 where they predict that another one saves more than a margin. The margin is
   the one that saves most in projects that the trees have not seen.

The best version is the one that is best on the validation projects.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Protocol, cast, runtime_checkable

import msgspec
import numpy as np
from msgspec import Meta

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.compiling.job import retried
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine
from policybridge_train.learning.alternatives import Chooser, Labels, config
from policybridge_train.learning.choosing import rows_of
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training
from policybridge_train.learning.trees import TreeSettings
from policybridge_train.tasks.modules import distinct
from policybridge_train.tasks.task import Asking, Case, Task
from policybridge_train.trajectories.trajectory import Collecting, Trajectory

_DESCRIPTION: Final = "Trees that predict the cost of each alternative, fitted to compiles with each of them"
_MARGINS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Multiples of the setting ``least``, from which the margin is chosen."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of ``--set``.

    Attributes:
        cases: the number of training cases to label, drawn by chance.
        tried: the numbers of the alternatives to compile with, with commas between; 0 is one of them. Empty: all.
        trees: the number of trees for each alternative.
        leaves: the number of leaves of a tree.
        rate: the learning rate.
        units: the least number of units in a leaf.
        fraction: the share of the features that each tree may split on.
        l2: see `TreeSettings`.
        most: the largest difference from the cost of alternative 1 that counts.
        least: the unit of the margins, in the unit of the task's costs.

    """

    cases: Annotated[int, Meta(ge=1)] = 1000
    tried: Annotated[str, Meta(pattern=r"^([0-9]{1,6}(,[0-9]{1,6})*)?$")] = ""
    trees: Annotated[int, Meta(ge=1)] = 100
    leaves: Annotated[int, Meta(ge=2)] = 15
    rate: Annotated[float, Meta(gt=0)] = 0.06
    units: Annotated[int, Meta(ge=1)] = 20
    fraction: Annotated[float, Meta(gt=0, le=1)] = 0.6
    l2: Annotated[float, Meta(ge=0)] = 20.0
    most: Annotated[float, Meta(gt=0)] = 50.0
    least: Annotated[float, Meta(gt=0)] = 1.0


@runtime_checkable
class Exhaustible(Protocol):
    """A task of which a compile can take one alternative for all units."""

    choices: int
    """The number of alternatives; the first one is the compiler's own."""

    def run_with(self, case: Case, choice: int) -> CompileResult:
        """Compile a case with one alternative for all units, without a server."""
        ...


def train(training: Training, settings: Settings) -> None:
    """Train the three versions; those that an interrupted run has published stay."""
    task = training.task
    if not (isinstance(task, Exhaustible) and task.choices > 1):
        raise InvalidError(
            f"the algorithm exhaustive needs a task that compiles a case with one alternative for all units, by an "
            f"attribute `choices` and a method `run_with`; {task.name} is none"
        )
    learner = _Learner(training, settings, task.choices)
    done = training.record.iterations()
    first = done[0] if done else learner.publish(0, Chooser(task.choices))
    learner.label(first)
    if training.over:
        return
    labels, projects = learner.labels()
    if len(done) < 2:
        learner.publish(1, Chooser.constant(labels))
    if len(done) < 3:
        learner.publish(2, learner.fitted(labels, projects))


class _Learner:
    def __init__(self, training: Training, settings: Settings, count: int) -> None:
        self._training, self._settings, self._count = training, settings, count
        self._tried = _numbers(settings.tried, count)
        self._columns = sum(spec.count for spec in training.task.features)

    def publish(self, number: int, chooser: Chooser) -> Iteration:
        """Publish a version, and validate it."""
        training = self._training
        text = config(training.task.features, training.task.advice, _DESCRIPTION)
        version = training.publish({"model.onnx": chooser.to_onnx(self._columns)}, text)
        return training.finish(number, version, training.validate(version))

    def label(self, first: Iteration) -> None:
        """Label training cases, except those that an interrupted run has labelled."""
        training = self._training
        trying = _Trying(training.asking(first.version, purpose="training"), self._count, self._tried, self._columns)
        cases = distinct(training.task, training.drawn(0, len(training.training)))
        waiting = [case for case in cases[: self._settings.cases] if not training.record.has(0, case.name)]
        units = 0
        for number, found in enumerate(training.collector.each(partial(self._label, trying), waiting), 1):
            units += found
            if number % 20 == 0 or number == len(waiting):
                training.say(f"{number} of {len(waiting)} cases, {units:,} units")
        training.compiles = max(training.compiles, training.record.compiles())

    def _label(self, trying: "_Trying", case: Case) -> int:
        if self._training.over:
            return 0
        tried = self._training.collector.one(case, trying)
        if tried.failure:
            self._training.say(f"{case.name}: {tried.failure}")
        self._training.record.keep(0, case.name, tried.compiles, tried.labels)
        return tried.units

    def labels(self) -> tuple[Labels, list[str]]:
        """Give the labels so far, and the project of each."""
        project_of = {case.name: case.project for case in self._training.training}
        found = [(name, self._unpacked(data)) for _, name, data in self._training.record.pieces(1)]
        projects = [project_of[name] for name, labels in found for _ in range(len(labels))]
        if not projects:
            raise InvalidError("no case was labelled, so there is nothing to learn from")
        return Labels.joined([labels for _, labels in found]), projects

    def _unpacked(self, data: bytes) -> Labels:
        return Labels.unpacked(data, self._columns, self._count)

    def fitted(self, labels: Labels, projects: Sequence[str]) -> Chooser:
        """Fit trees to the labels."""
        each = self._settings
        settings = TreeSettings(
            each.trees, each.leaves, each.rate, each.units, each.fraction, each.l2, each.most, self._training.seed
        )
        return Chooser.fitted(labels, projects, [each.least * factor for factor in _MARGINS], settings)


def _numbers(words: str, count: int) -> Sequence[int]:
    """Give the alternatives to compile with beside the first."""
    numbers = sorted({int(word) for word in words.split(",")} - {0}) if words else range(1, count)
    if numbers and numbers[-1] >= count:
        raise InvalidError(f"tried: the alternatives have the numbers 0 to {count - 1}, not {numbers[-1]}")
    return numbers


class _Tried(msgspec.Struct, frozen=True):
    """The labels of a case, encoded as in the record; none if a compile failed."""

    labels: bytes
    units: int
    compiles: int
    failure: str = ""


@dataclass(frozen=True)
class _Trying:
    """Compiles a case with each alternative.

    Attributes:
        asking: the server and the policy of the first compile, for the first alternative and the features.
        count: the number of alternatives.
        tried: those to compile with, beside the first.
        columns: the number of columns of the features.

    """

    asking: Asking
    count: int
    tried: Sequence[int]
    columns: int

    def __call__(self, machine: Machine, task: Task, case: Case) -> _Tried:
        """Compile on the machine: the labels are much smaller than the results."""
        first = Collecting(self.asking)(machine, task, case)
        results = [first.result, *(self._others(machine, task, case) if len(first) else ())]
        whole = len(results) == 1 + len(self.tried) and results[-1].ok
        labels = self._labels(first, results, task) if whole else Labels.none(self.columns, self.count)
        return _Tried(labels.packed(), len(labels), len(results), results[-1].failure)

    def _others(self, machine: Machine, task: Task, case: Case) -> Iterator[CompileResult]:
        """Compile with each further alternative to try, up to the first that fails."""
        made = cast("Exhaustible", task)
        for choice in self.tried:
            try:
                result = retried(partial(_run_with, made, case, choice), machine.running, asks=False)
            except PolicyBridgeError as error:
                if machine.running.over:
                    raise
                result = CompileResult.failed(str(error))
            yield result
            if not result.ok:
                return

    def _labels(self, first: Trajectory, results: Sequence[CompileResult], task: Task) -> Labels:
        """Label the units that have a cost in all compiles; what was not tried costs more than anything."""
        places = [place for place, unit in enumerate(first.units) if all(unit in each.costs for each in results)]
        costs = np.full((len(places), self.count), np.inf, np.float32)
        for choice, result in zip((0, *self.tried), results, strict=True):
            costs[:, choice] = [result.costs[first.units[place]] for place in places]
        return Labels(rows_of(first.observations[places], task.features), costs)


def _run_with(task: Exhaustible, case: Case, choice: int, _: bool) -> CompileResult:
    return task.run_with(case, choice)
