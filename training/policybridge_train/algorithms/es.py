"""Evolution strategies: try small changes of the weights, and move towards those that made programs smaller.

Salimans and others, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", 2017; here with
antithetic pairs, linear weights (or one hidden layer) beside the compiler's own decision, and Adam.

With ``reward=function`` every function has a change of its own: the model holds `sets` changed weights, and the hash
of the caller chooses among them. So one pair of compiles tells as much as `sets` pairs that change a whole module. With
``reward=module`` each change is a version, and has its share of the modules.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from policybridge_serdes import PolicyVersion
from policybridge_train.learning.network import Floats, Layer, Network, Scaling, inputs_of, yes_no_features
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.rewards import Compared, Reward, callees_of, inlined_in
from policybridge_train.learning.training import Training
from policybridge_train.tasks.task import Case
from policybridge_train.trajectories.trajectory import Trajectory

_UNIT: Final = "caller"
"""The feature that tells the function, an int64 hash."""

_MOST: Final = 200.0
"""Bytes that one pair of compiles says of a function's weights, at most: one huge function outweighs no others."""

_STATE: Final = "state"
_DESCRIPTION: Final = "Weights beside the compiler's own decision, found by evolution strategies"
_FIRST_DECAY, _SECOND_DECAY, _TINY = 0.8, 0.95, 1e-8
_SLOWING: Final = 10
"""Iterations after which the learning rate is halved: the first gains are large, and the noise stays."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        iterations: at most so many.
        cases: compiled in each iteration, each twice.
        reward: ``function``, or ``module``, with which the pairs of an iteration are few.
        sets: changed weights in an iteration.
        pairs: changed weights in an iteration with ``reward=module``.
        hidden: neurons; 0: linear weights.
        lean: the score of the compiler's own decision; the weights must exceed it to deviate.
        sigma: the standard deviation of a change.
        rate: of learning.

    """

    iterations: Annotated[int, Meta(ge=1)] = 30
    cases: Annotated[int, Meta(ge=1)] = 300
    reward: Reward = "function"
    sets: Annotated[int, Meta(ge=2)] = 256
    pairs: Annotated[int, Meta(ge=1)] = 8
    hidden: Annotated[int, Meta(ge=0)] = 0
    lean: Annotated[float, Meta(gt=0)] = 1.0
    sigma: Annotated[float, Meta(gt=0)] = 0.1
    rate: Annotated[float, Meta(gt=0)] = 0.1


class _State(msgspec.Struct):
    """What an iteration goes on from: the weights and Adam's two moments, each shape [parameters]; and the scaling."""

    weights: bytes
    first: bytes
    second: bytes
    mean: bytes
    deviation: bytes


def train(training: Training, settings: Settings) -> None:
    """Train until the iterations or the time are at their end."""
    strategy = _Strategy(training, settings)
    last = strategy.begin()
    while last.number < settings.iterations and not training.over:
        last = strategy.iterate(last.number + 1)


class _Strategy:
    def __init__(self, training: Training, settings: Settings) -> None:
        self._training, self._settings = training, settings
        self._features = yes_no_features(training.task)
        inputs, hidden = len(self._features), settings.hidden
        self._shapes = [(inputs, hidden), (hidden, 1)] if hidden else [(inputs, 1)]
        count = sum((inputs + 1) * outputs for inputs, outputs in self._shapes)
        self._weights, self._first, self._second = (np.zeros(count) for _ in range(3))
        if hidden:
            # With zeros in both layers no change of one would have any effect.
            self._weights[: inputs * hidden] = np.random.default_rng(training.seed).normal(
                0, inputs**-0.5, inputs * hidden
            )
        self._scaling = Scaling(np.zeros(inputs, np.float32), np.ones(inputs, np.float32))

    def begin(self) -> Iteration:
        """Continue from the record, or publish the compiler's own decisions and learn the features' scale."""
        done = self._training.record.iterations()
        if done:
            self._restore(done[-1].number)
            return done[-1]
        version = self._publish(self._weights[np.newaxis])
        asking = self._training.asking(version, purpose="scaling")
        seen = self._training.collected(self._training.drawn(0, self._settings.cases), asking)
        self._scaling = Scaling.of(inputs_of(seen, self._features))
        return self._finish(0)

    def iterate(self, number: int) -> Iteration:
        """Compile with changed weights, and move by what that came to."""
        chance = np.random.default_rng([self._training.seed, number])
        cases = self._training.drawn(number, self._settings.cases)
        if self._settings.reward == "function":
            noise, worth = self._by_function(cases, chance)
        else:
            noise, worth = self._by_module(cases, chance)
        self._step(noise.T @ worth / len(worth), number)
        return self._finish(number)

    def _by_function(self, cases: Sequence[Case], chance: np.random.Generator) -> tuple[npt.NDArray[np.float64], ...]:
        """Give changes of the weights, and the cost of each minus that of its opposite."""
        sets = self._settings.sets
        noise = chance.normal(size=(sets, len(self._weights)))
        both = [self._collected(self._weights + side * self._settings.sigma * noise, cases) for side in (1, -1)]
        worth = np.zeros(sets)
        for up, down in zip(*both, strict=True):
            if up.result.ok and down.result.ok:
                for unit, difference in _differences(up, down):
                    worth[_place(unit, sets)] += np.clip(difference, -_MOST, _MOST)
        return noise, worth

    def _by_module(self, cases: Sequence[Case], chance: np.random.Generator) -> tuple[npt.NDArray[np.float64], ...]:
        pairs = min(self._settings.pairs, len(cases))
        noise = chance.normal(size=(pairs, len(self._weights)))
        worth = np.zeros(pairs)
        for pair in range(pairs):
            changed = [self._weights + side * self._settings.sigma * noise[pair] for side in (1, -1)]
            both = [self._collected(each[np.newaxis], cases[pair::pairs]) for each in changed]
            for up, down in zip(*both, strict=True):
                if up.result.ok and down.result.ok and down.result.costs:
                    worth[pair] += np.log(sum(up.result.costs.values()) / sum(down.result.costs.values()))
        return noise, worth

    def _collected(self, weights: npt.NDArray[np.float64], cases: Sequence[Case]) -> list[Trajectory]:
        asking = self._training.asking(self._publish(weights), purpose="training")
        return self._training.collected(cases, asking)

    def _step(self, gradient: npt.NDArray[np.float64], number: int) -> None:
        """Move against the gradient by Adam (Kingma and Ba, 2015)."""
        self._first = _FIRST_DECAY * self._first + (1 - _FIRST_DECAY) * gradient
        self._second = _SECOND_DECAY * self._second + (1 - _SECOND_DECAY) * gradient**2
        first, second = self._first / (1 - _FIRST_DECAY**number), self._second / (1 - _SECOND_DECAY**number)
        rate = self._settings.rate / (1 + number / _SLOWING)
        self._weights = self._weights - rate * first / (np.sqrt(second) + _TINY)

    def _publish(self, weights: npt.NDArray[np.float64]) -> PolicyVersion:
        task, sets = self._training.task, len(weights)
        layers, begin = [], 0
        for inputs, outputs in self._shapes:
            middle = begin + inputs * outputs
            matrix = weights[:, begin:middle].reshape(sets, inputs, outputs).astype(np.float32)
            bias = weights[:, middle : middle + outputs].reshape(sets, 1, outputs).astype(np.float32)
            layers.append(Layer(matrix, bias))
            begin = middle + outputs
        # All versions of a policy share one policy.toml, so that all have this input or none.
        chosen_by = _UNIT if self._settings.reward == "function" else ""
        network = Network(self._features, task.default, self._settings.lean, self._scaling, layers, chosen_by)
        files = {"model.onnx": network.to_onnx()}
        return self._training.publish(files, network.config(task, _DESCRIPTION))

    def _finish(self, number: int) -> Iteration:
        training = self._training
        arrays = (self._weights, self._first, self._second, self._scaling.mean, self._scaling.deviation)
        state = _State(*(each.tobytes() for each in arrays))
        training.record.keep(number, _STATE, 0, msgspec.msgpack.encode(state))
        version = self._publish(self._weights[np.newaxis])
        return training.finish(number, version, training.validate(version))

    def _restore(self, number: int) -> None:
        data = self._training.record.piece(number, _STATE)
        state = msgspec.msgpack.decode(data, type=_State)
        found = (np.frombuffer(each) for each in (state.weights, state.first, state.second))
        self._weights, self._first, self._second = (each.copy() for each in found)
        scales: tuple[Floats, ...] = tuple(np.frombuffer(each, np.float32) for each in (state.mean, state.deviation))
        self._scaling = Scaling(*scales)


def _differences(up: Trajectory, down: Trajectory) -> Iterator[tuple[str, float]]:
    """Give for each unit how many bytes more its decisions cost than under the opposite weights."""
    callees: dict[str, set[str]] = {}
    for trajectory in (up, down):
        for unit, names in zip(trajectory.units, callees_of(trajectory), strict=True):
            callees.setdefault(unit, set()).update(names)
    compared, inlined = Compared(up.result.costs, down.result.costs), (inlined_in(up), inlined_in(down))
    for unit, called in callees.items():
        above = inlined[0].above(unit) | inlined[1].above(unit)
        yield unit, compared.unit(unit, above) + compared.callees(called - {unit})


def _place(unit: str, sets: int) -> int:
    """Give the set that decides in a unit, as the model computes it of the hash as an int64."""
    number = int(unit, 16)
    return (number - (1 << 64) if number >> 63 else number) % sets
