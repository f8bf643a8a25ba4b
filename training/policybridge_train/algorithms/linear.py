"""Linear: few weights of a score, found by evolution in which every function of a compilation is a trial of its own.

Each step compiles some training modules twice. In the first compilation each function decides by the weights plus a
random change that is the function's own, in the second by the weights less that change. The two costs of a function
tell in which direction its change helps; the mean of these directions over all functions is the step's gradient
(evolution strategies with antithetic sampling: Salimans et al., 2017, where a whole compilation would be one trial).
LLVM tells the function of each decision, so that one compiler tries hundreds of changes. A server binds a session to
one version, so this process answers the compilers; published versions are validated through the server like any policy.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from policybridge_client.answers import Answers
from policybridge_core.errors import InvalidError
from policybridge_serdes import SessionOptions, Signature, Values
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training
from policybridge_train.tasks.allocation import Eviction
from policybridge_train.tasks.eviction_scores import COLUMNS, LIGHTEST, Weights, config, evicted, to_onnx
from policybridge_train.tasks.raising import run_case
from policybridge_train.tasks.task import Case, Task

_SCALES: Final = np.array([column.scale for column in COLUMNS])
_MOST: Final = 1.0
"""Of a function's change in cost; more is counted as this, so that no function outweighs the others."""

_FIRST, _SECOND = 0.9, 0.99
"""The decays of Adam's two means (Kingma, Ba 2015)."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        iterations: most versions.
        steps: in each iteration.
        cases: compiled twice in each step.
        reach: how far a change goes, as a factor of each weight's scale.
        rate: how far a step goes, the same.

    """

    iterations: Annotated[int, Meta(ge=1)] = 8
    steps: Annotated[int, Meta(ge=1)] = 8
    cases: Annotated[int, Meta(ge=1)] = 60
    reach: Annotated[float, Meta(gt=0)] = 0.5
    rate: Annotated[float, Meta(gt=0)] = 0.25


@dataclass(frozen=True)
class _State:
    """The state after ``step`` steps: the weights, their running mean, and Adam's two means."""

    step: int
    weights: Weights
    mean: Weights
    first: Weights
    second: Weights

    def packed(self) -> bytes:
        return np.concatenate([[self.step], self.weights, self.mean, self.first, self.second]).tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> "_State":
        values = np.frombuffer(data, np.float64)
        weights, mean, first, second = values[1:].reshape(4, len(COLUMNS))
        return cls(int(values[0]), weights, mean, first, second)

    def stepped(self, gradient: Weights, rate: float) -> "_State":
        """Give the state after a step of Adam; the rate sinks slowly."""
        step = self.step + 1
        first = _FIRST * self.first + (1 - _FIRST) * gradient
        second = _SECOND * self.second + (1 - _SECOND) * gradient**2
        direction = first / (1 - _FIRST**step) / (np.sqrt(second / (1 - _SECOND**step)) + 1e-8)
        weights = self.weights - rate * min(1.0, step / 5) / (1 + step / 60) * _SCALES * direction
        return _State(step, weights, 0.9 * self.mean + 0.1 * weights, first, second)


def train(training: Training, settings: Settings) -> None:
    """Train until the iterations or the time are at their end."""
    task = training.task
    if not isinstance(task, Eviction):
        raise InvalidError(f"the algorithm linear knows the scores of eviction alone, and not {training.task.name}")
    done = training.record.iterations()
    last = done[-1] if done else _begin(training)
    state = _continued(training, last)
    while last.number < settings.iterations and not training.over:
        while state.step < (last.number + 1) * settings.steps:
            state = _step(training, state, settings, last.number)
        version = training.publish({"model.onnx": to_onnx(state.mean)}, config())
        last = training.finish(last.number + 1, version, training.validate(version))


def _begin(training: Training) -> Iteration:
    """Publish the lightest weights, which are closest to LLVM; the baseline is LLVM itself."""
    version = training.publish({"model.onnx": to_onnx(np.array(LIGHTEST))}, config())
    plain = training.collector.map(_by_itself, training.validation)
    costs = {case.name: ran.totals for case, ran in zip(training.validation, plain, strict=True) if ran.ok}
    training.compiles += len(training.validation)
    return training.finish(0, version, costs)


def _by_itself(machine: Machine, task: Task, case: Case) -> CompileResult:  # noqa: ARG001 - of `Work`
    return run_case(task, case, None)


def _continued(training: Training, last: Iteration) -> _State:
    lightest, nothing = np.array(LIGHTEST), np.zeros(len(COLUMNS))
    state = _State(0, lightest, lightest, nothing, nothing)
    for _, _, data in training.record.pieces(last.number + 1):
        state = max(state, _State.unpacked(data), key=lambda each: each.step)
    return state


def _step(training: Training, state: _State, settings: Settings, iteration: int) -> _State:
    chance = np.random.default_rng([training.seed, state.step])
    count = min(settings.cases, len(training.training))
    cases = [training.training[index] for index in chance.choice(len(training.training), count, replace=False)]
    tries = _Tries(state, f"{training.seed} {state.step}", settings.reach)
    found = [one for part in training.collector.map(tries, cases) for one in part]
    gradient = np.sum(found, axis=0) / len(found) if found else np.zeros(len(COLUMNS))
    after = state.stepped(gradient, settings.rate)
    training.compiles += 2 * count
    training.record.keep(iteration, f"step {after.step:06}", 2 * count, after.packed())
    training.say(f"iteration {iteration + 1}: step {after.step}, {len(found)} functions of {count} modules")
    return after


@dataclass(frozen=True)
class _Tries:
    """The changes of one step, tried on a case; usable from any thread."""

    state: _State
    seed: str
    reach: float

    def perturbation(self, function: str) -> Weights:
        """Give the change of a function, in units of the scales: the same wherever the function is compiled."""
        digest = hashlib.sha256(f"{self.seed} {function}".encode(errors="surrogateescape")).digest()
        return np.random.default_rng(list(digest)).standard_normal(len(COLUMNS))

    def __call__(self, machine: Machine, task: Task, case: Case) -> list[Weights]:  # noqa: ARG002 - of `Work`
        """Compile a case twice; give each function's direction. A case that fails has none."""
        assert isinstance(task, Eviction)  # noqa: S101 - see `train`
        asked: set[str] = set()
        costs = []
        for sign in (1, -1):
            connection = _Answering(lambda function, sign=sign: self._weights(function, sign), asked)  # type: ignore[misc]
            ran = task.run_by(case, connection)
            if not ran.ok:
                return []
            costs.append(ran.costs)
        changes = {name: costs[0].get(name, 0.0) - costs[1].get(name, 0.0) for name in sorted(asked)}
        return [np.clip(change, -_MOST, _MOST) * self.perturbation(name) / 2 for name, change in changes.items()]

    def _weights(self, function: str, sign: int) -> Weights:
        return self.state.weights + sign * self.reach * _SCALES * self.perturbation(function)


class _Answering(Answers):
    """Answers each function by weights of its own."""

    def __init__(self, weights_of: Callable[[str], Weights], asked: set[str]) -> None:
        self._weights_of = weights_of
        self._asked = asked
        self._weights = np.array(LIGHTEST)

    def begin(self, signature: Signature, options: SessionOptions) -> None:
        super().begin(signature, options)
        self.context(options.context)

    def context(self, name: str) -> None:
        self._function = name
        self._weights = self._weights_of(name)

    def evaluate(self, observation: Values) -> Values:
        self._asked.add(self._function)
        return self.advice(evicted(observation, self._weights))
