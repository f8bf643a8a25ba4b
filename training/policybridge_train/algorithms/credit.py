"""Credit: flip single decisions of the policy, fit trees to the bytes that each flip saves, and repeat.

An iteration has four steps:

1. Compile the training modules with the newest version on the server, and read the decisions from the ledger.
2. Compile each module a few more times with many of these decisions flipped, so that each flip has its own credit in
   bytes. The case of a task for speed is a program, whose functions' own instructions are counted instead.
3. Fit trees to all flips so far.
4. Publish a version that takes LLVM's own decision, unless the trees predict that the other decision saves more than
   ``least`` bytes.

The best version is the one that is best on the validation projects; the run ends when they improve no more.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine, Shared
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training, total_factor
from policybridge_train.learning.trees import Trees, TreeSettings, fit, to_onnx
from policybridge_train.tasks.inline import TOLD, InlineForSize
from policybridge_train.tasks.inline_speed import InlineForSpeed
from policybridge_train.tasks.modules import distinct
from policybridge_train.tasks.task import Asking, Case, Task
from policybridge_train.trajectories.trajectory import Collecting, Trajectory
from policybridge_train.tuning.crediting import Ground, Labels, decisions_of
from policybridge_train.tuning.linked_credit import LinkedCosts, decided

_UNKNOWN: Final = -1
"""Value of the features that only the plugin sends, if the compiler asks without the plugin."""

FEATURES: Final = tuple(spec.name for spec in InlineForSize.features)
"""Names of the features that the policy reads, in the order of its columns."""

_PATIENCE: Final = 2
"""Iterations without a gain on the validation projects, after which a run ends."""


_PARTS: Final = 10_000
"""Of a program's instructions: so no program outweighs others, and the settings in bytes have a like size."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of ``--set``.

    Attributes:
        iterations: the limit of iterations.
        compiles: the number of compiles with flips, for each module and iteration.
        trees: the number of trees in the policy.
        leaves: the number of leaves of a tree.
        rate: the learning rate.
        fraction: the share of the features that each tree may split on.
        l2: see `TreeSettings`.
        most: bytes to which a larger credit is cut; of programs, ten-thousandths of the instructions.
        least: the same; the policy deviates from LLVM only if the predicted saving is larger.
        linked: a function of which a linker keeps one copy counts for its part in each module that has it.

    """

    iterations: Annotated[int, Meta(ge=1)] = 6
    compiles: Annotated[int, Meta(ge=1)] = 4
    trees: Annotated[int, Meta(ge=1)] = 200
    leaves: Annotated[int, Meta(ge=2)] = 31
    rate: Annotated[float, Meta(gt=0)] = 0.12
    fraction: Annotated[float, Meta(gt=0, le=1)] = 0.6
    l2: Annotated[float, Meta(ge=0)] = 100.0
    most: Annotated[float, Meta(gt=0)] = 50.0
    least: Annotated[float, Meta(gt=0)] = 1.0
    linked: bool = False


def train(training: Training, settings: Settings) -> None:
    """Train until the limit of iterations, of time or of patience is reached."""
    task = training.task
    if not isinstance(task, InlineForSize):
        raise InvalidError(f"the algorithm credit knows flips of inlining alone; train {task.name} by es or ppo")
    done = training.record.iterations()
    if not _goes_on(training, settings, done):
        return
    linked = _linked(training) if settings.linked else None
    trees = _fitted(training, done[-1].number, settings) if done else Trees()
    if not done:
        done = [_publish(training, 0, trees, settings.least, linked)]
    cases = training.training if isinstance(task, InlineForSpeed) else distinct(task, training.training)
    while _goes_on(training, settings, done):
        last = done[-1]
        _collect(training, last, _trying(training, last, trees, settings.compiles), cases, linked)
        trees = _fitted(training, last.number + 1, settings)
        done.append(_publish(training, last.number + 1, trees, settings.least, linked))


def _goes_on(training: Training, settings: Settings, done: Sequence[Iteration]) -> bool:
    if not done:
        return True
    return done[-1].number < settings.iterations and not training.over and not _is_flat(done)


def _linked(training: Training) -> LinkedCosts:
    cases = [*training.training, *training.validation]
    training.compiles += len(cases)
    return LinkedCosts.counted(training.task, training.collector, cases)


def _is_flat(done: Sequence[Iteration]) -> bool:
    factors = [total_factor(each.costs, done[0].costs) for each in done]
    return len(done) > _PATIENCE and min(factors[-_PATIENCE:]) >= min(factors[:-_PATIENCE])


def _trying(training: Training, last: Iteration, trees: Trees, compiles: int) -> "_Trying":
    asking = training.asking(last.version, purpose="training")
    return _Trying(asking, f"{training.seed} {last.number}", training.collector.farm.share(trees), compiles)


def _collect(
    training: Training, last: Iteration, trying: "_Trying", cases: Sequence[Case], linked: LinkedCosts | None
) -> None:
    """Try flips in all training modules, except those that an interrupted run has recorded."""
    each = partial(_try, training, last, trying, linked)
    waiting = [case for case in cases if not training.record.has(last.number, case.name)]
    flips = 0
    for number, found in enumerate(training.collector.each(each, waiting), 1):
        flips += found
        if number % 50 == 0 or number == len(waiting):
            training.say(f"iteration {last.number + 1}: {number} of {len(waiting)} modules, {flips:,} flips")
    training.compiles = max(training.compiles, training.record.compiles())


def _try(training: Training, last: Iteration, trying: "_Trying", linked: LinkedCosts | None, case: Case) -> int:
    """Try flips in one module, and record the labels; give the number of flips."""
    tried = training.collector.one(case, replace(trying, shared=linked.of(case)) if linked else trying)
    if tried.failure:
        # If a compile with flips fails, the module keeps the labels of the compiles before it.
        training.say(f"{case.name}: {tried.failure}")
    training.record.keep(last.number, case.name, tried.compiles, tried.labels)
    return tried.flips


class _Tried(msgspec.Struct, frozen=True):
    """A module's labels, encoded as in the record."""

    labels: bytes
    flips: int
    compiles: int
    failure: str = ""


@dataclass(frozen=True)
class _Trying:
    """Tries flips in one module.

    Attributes:
        asking: the server and the policy of the first compile.
        seed: with the name of the case, seeds the order of the flips.
        trees: predict credits; flips are tried in the order of these.
        compiles: the limit of compiles with flips; two compiles without flips precede them.
        shared: in how many modules of a program the module's functions are, where those are several.

    """

    asking: Asking
    seed: str
    trees: Shared[Trees]
    compiles: int
    shared: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, machine: Machine, task: Task, case: Case) -> _Tried:
        """Try flips on the machine that compiles: the labels are much smaller than the results of the compiles."""
        assert isinstance(task, InlineForSize)  # noqa: S101 - see `train`
        trajectory = Collecting(self.asking)(machine, task, case)
        learnt, compiles, failure = list[Labels](), 1, ""
        if len(trajectory):
            try:
                for labels in self._flipped(machine, task, trajectory):
                    learnt.append(labels)
                    compiles += 1
            except PolicyBridgeError as error:
                if machine.running.over:
                    raise
                failure = str(error)
            compiles += 1
        labels = Labels.joined(learnt, len(FEATURES))
        return _Tried(msgspec.msgpack.encode(_packed(labels)), len(labels), compiles, failure)

    def _flipped(self, machine: Machine, task: InlineForSize, trajectory: Trajectory) -> Iterator[Labels]:
        chance = random.Random(f"{self.seed} {trajectory.case.name}")  # noqa: S311 - no secret
        pinned = _measured(task, trajectory.case, decisions_of(trajectory))
        ground, scale = Ground(trajectory, pinned, FEATURES, self.shared), _scale(pinned)
        rest = ground.order(self.trees.at(machine).predict, chance)
        for _ in range(self.compiles):
            flips, rest = ground.fitting(rest)
            if not flips:
                return
            seen = _measured(task, trajectory.case, ground.decisions(flips))
            yield ground.labels([(flip, credit * scale) for flip, credit in ground.credits(flips, seen)])


def _measured(task: InlineForSize, case: Case, decisions: Mapping[str, bool]) -> CompileResult:
    return task.measured(case, decisions) if isinstance(task, InlineForSpeed) else decided(task, case, decisions)


def _scale(pinned: CompileResult) -> float:
    """Give the unit of a case's credits: a byte, or of a program a ten-thousandth of its instructions."""
    instructions = pinned.totals.get("instructions")
    return _PARTS / instructions if instructions else 1.0


def _packed(labels: Labels) -> Mapping[str, bytes]:
    return {name: np.ascontiguousarray(getattr(labels, name)).tobytes() for name in ("rows", "bytes", "weights")}


def _unpacked(data: bytes) -> Labels:
    found = {name: np.frombuffer(one, np.float32) for name, one in msgspec.msgpack.decode(data).items()}
    return Labels(found["rows"].reshape(-1, len(FEATURES)), found["bytes"], found["weights"])


def _fitted(training: Training, until: int, settings: Settings) -> Trees:
    return fitted([data for _, _, data in training.record.pieces(until)], settings, training.seed)


def fitted(pieces: Sequence[bytes], settings: Settings, seed: int) -> Trees:
    """Fit trees to the flips in a run's record; the same flips and seed give the same trees.

    Each flip makes two rows of equal weight: one has all features, the other has `_UNKNOWN` for those that only the
    plugin sends.
    """
    labels = Labels.joined([_unpacked(data) for data in pieces], len(FEATURES))
    untold = labels.rows.copy()
    untold[:, [FEATURES.index(name) for name in TOLD]] = _UNKNOWN
    rows = np.concatenate([labels.rows, untold])
    fitting = TreeSettings(
        settings.trees,
        settings.leaves,
        settings.rate,
        fraction=settings.fraction,
        l2=settings.l2,
        most=settings.most,
        seed=seed,
    )
    return fit(rows, np.tile(labels.bytes, 2), fitting, np.tile(labels.weights, 2))


def _publish(training: Training, number: int, trees: Trees, least: float, linked: LinkedCosts | None) -> Iteration:
    version = training.publish({"model.onnx": model_of(training.task, trees, least)}, policy_config())
    return training.finish(number, version, training.validate(version, linked.totals if linked else None))


def model_of(task: Task, trees: Trees, least: float) -> bytes:
    """Give the ONNX model: it deviates from the compiler if the trees predict a saving of more than ``least`` bytes."""
    return to_onnx(trees, FEATURES, task.default, least, task.advice.name)


def policy_config() -> str:
    """Give the ``policy.toml`` of this algorithm's policies."""
    features = ", ".join(f'"{name}"' for name in FEATURES)
    fills = "".join(f"{name} = {_UNKNOWN}\n" for name in TOLD)
    return (
        'backend = "onnx"\n'
        'description = "Trees that predict the bytes of inlining a call, fitted to flips of single decisions"\n\n'
        f"[fill]\n{fills}\n"
        f"[settings.pack.observation]\nfeatures = [{features}]\n"
    )
