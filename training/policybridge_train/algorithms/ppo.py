"""Proximal policy optimisation of yes/no decisions, each with a reward of its own.

Schulman and others, "Proximal Policy Optimization Algorithms", 2017. The compilers' sessions explore: the server draws
each decision by the network's probabilities, and the ledger has its log-probability. A decision is credited with what
became of its function and its callee (``reward=function``), or of its module; with such a reward decisions need no
discount and no critic. Each case is compiled several times, and the baseline of a function is the mean cost in its
other compilations (Kool, van Hoof and Welling, "Buy 4 REINFORCE Samples, Get a Baseline for Free!", 2019). The
network leans towards the compiler's own decision, so that it begins as the compiler with some deviations.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from policybridge_train.tasks.task import Case
from policybridge_train.trajectories.trajectory import Trajectory

_DESCRIPTION: Final = "A small network beside the compiler's own decision, trained by PPO"
_MOST: Final = 300.0
"""Bytes of a reward, at most: one huge function outweighs no others."""

_MEMORY: Final = 0.9
"""The part of the moving scale that an iteration keeps."""

Costs = npt.NDArray[np.float64]
"""By how much each decision of a compilation costs more than by default; shape [n]."""


_SLOWING: Final = 10
"""Iterations after which the learning rate is halved."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        iterations: at most so many.
        cases: compiled in each iteration.
        draws: compilations of a case.
        reward: ``function`` or ``module``: whose cost is a decision's reward.
        lean: the score of the compiler's own decision at the beginning; 3: one decision in twenty deviates.
        clip: of the ratio of probabilities.
        entropy: the weight of the entropy.
        rate: of learning.
        epochs: how often an iteration's decisions are learnt from.
        batch: decisions in a step.

    """

    iterations: Annotated[int, Meta(ge=1)] = 30
    cases: Annotated[int, Meta(ge=1)] = 50
    draws: Annotated[int, Meta(ge=2)] = 4
    reward: Reward = "function"
    lean: Annotated[float, Meta(gt=0)] = 3.0
    clip: Annotated[float, Meta(gt=0)] = 0.5
    entropy: Annotated[float, Meta(ge=0)] = 0.02
    rate: Annotated[float, Meta(gt=0)] = 3e-3
    epochs: Annotated[int, Meta(ge=1)] = 4
    batch: Annotated[int, Meta(ge=1)] = 1024


def train(training: Training, settings: Settings) -> None:
    """Train until the iterations or the time are at their end."""
    optimisation = _Optimisation(training, settings)
    last = optimisation.begin()
    while last.number < settings.iterations and not training.over:
        last = optimisation.iterate(last)


class _Optimisation:
    def __init__(self, training: Training, settings: Settings) -> None:
        self._training, self._settings = training, settings
        self._learner = LeaningNetwork(training, settings.lean, settings.rate, _DESCRIPTION)
        self._scale = 0.0
        self._defaults: dict[str, Mapping[str, float]] = {}

    def begin(self) -> Iteration:
        """Continue from the record, or publish the compiler's own decisions and learn the features' scale."""
        done = self._training.record.iterations()
        if done:
            self._scale = float(self._learner.restore(done[-1].number)["scale"])
            return done[-1]
        version = self._learner.publish()
        cases = self._training.drawn(1, self._settings.cases)
        seen = self._training.collected(cases, self._training.asking(version, "training"))
        self._learner.scaling = Scaling.of(inputs_of(seen, self._learner.features))
        self._defaults = {each.case.name: each.result.costs for each in seen if each.result.ok}
        return self._finish(0)

    def iterate(self, last: Iteration) -> Iteration:
        """Compile with drawn decisions, and learn from their costs."""
        number = last.number + 1
        cases = self._training.drawn(number, self._settings.cases)
        self._know_defaults(cases)
        seen = []
        for draw in range(self._settings.draws):
            # Each case draws by its own seed, which the plugin mixes with the module's name.
            seed = (self._training.seed << 32) + number * self._settings.draws + draw
            asking = self._training.asking(last.version, "training", Exploration(seed, 1.0))
            seen += self._training.collected(cases, asking)
        seen = [each for each in seen if len(each) and each.case.name in self._defaults]
        if seen:
            self._learner.network.slow_down(1 + number / _SLOWING)
            self._learn(seen)
        return self._finish(number)

    def _know_defaults(self, cases: Sequence[Case]) -> None:
        unknown = [case for case in cases if case.name not in self._defaults]
        first = self._training.record.iterations()[0].version
        # These few may all be cases that never compile.
        found = list(self._training.collector.collect(unknown, self._training.asking(first, purpose="training")))
        self._training.compiles += len(found)
        self._defaults |= {each.case.name: each.result.costs for each in found if each.result.ok}

    def _learn(self, seen: Sequence[Trajectory]) -> None:
        settings, learner, network = self._settings, self._learner, self._learner.network
        torch, rows = network.torch, inputs_of(seen, learner.features)
        inputs, lean = torch.from_numpy(learner.scaling(rows)), torch.from_numpy(learner.leaning(rows))
        yes = torch.from_numpy(np.concatenate([each.advice != 0 for each in seen]).astype(np.float32))
        before = torch.from_numpy(np.concatenate([each.log_probabilities for each in seen]).astype(np.float32))
        advantage = torch.from_numpy(self._advantages(seen))
        for _ in range(settings.epochs):
            for some in network.batches(len(yes), settings.batch):
                score = network.module(inputs[some]).squeeze(1) + lean[some]
                chosen = -torch.nn.functional.binary_cross_entropy_with_logits(score, yes[some], reduction="none")
                ratio = (chosen - before[some]).exp()
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                gained = torch.minimum(ratio * advantage[some], clipped * advantage[some]).mean()
                entropy = (torch.nn.functional.softplus(score) - score * score.sigmoid()).mean()
                network.step(-gained - settings.entropy * entropy)

    def _advantages(self, seen: Sequence[Trajectory]) -> npt.NDArray[np.float32]:
        """Give how much better each decision was than other compilations of its function, in units of the spread."""
        default, reward = self._defaults, self._settings.reward
        costs = [np.clip(extra_costs(each, default[each.case.name], reward), -_MOST, _MOST) for each in seen]
        more = np.concatenate([cost - other for cost, other in zip(costs, _others(seen, costs, reward), strict=True)])
        memory = _MEMORY if self._scale else 0.0
        self._scale = memory * self._scale + (1 - memory) * float(more.std())
        advantages: npt.NDArray[np.float32] = (-more / (self._scale + 1e-6)).astype(np.float32)
        return advantages

    def _finish(self, number: int) -> Iteration:
        return self._learner.finish(number, scale=np.array(self._scale))


def _others(seen: Sequence[Trajectory], costs: Sequence[Costs], reward: Reward) -> Iterator[Costs]:
    """Give for each decision what its function, or module, cost in the other compilations of the case; 0 if in none."""
    units = [np.array(each.units if reward == "function" else [""] * len(each), object) for each in seen]
    means: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for index, (each, own, cost) in enumerate(zip(seen, units, costs, strict=True)):
        for unit in set(own):
            means.setdefault((each.case.name, unit), []).append((index, float(cost[own == unit].mean())))
    for index, (each, own) in enumerate(zip(seen, units, strict=True)):
        others = {
            unit: [mean for where, mean in means[each.case.name, unit] if where != index] or [0.0] for unit in set(own)
        }
        known = {unit: sum(found) / len(found) for unit, found in others.items()}
        yield np.array([known[unit] for unit in own])
