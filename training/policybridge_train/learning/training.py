"""A training run: an algorithm's task, cases, server and record, and the steps for each new version."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from policybridge_core.errors import UnavailableError
from policybridge_core.plugins import Table
from policybridge_serdes import Exploration, PolicyVersion
from policybridge_train.corpus.parts import Part
from policybridge_train.corpus.splitting import Split
from policybridge_train.learning.record import Iteration, Record
from policybridge_train.tasks.task import Asking, Case, Task
from policybridge_train.trajectories.server import TrainingServer
from policybridge_train.trajectories.trajectory import Collector, Trajectory

ALGORITHMS: Final = Table(
    kind="training algorithm",
    group="policybridge.algorithms",
    own={
        "credit": "policybridge_train.algorithms.credit",
        "bc": "policybridge_train.algorithms.bc",
        "bcmax": "policybridge_train.algorithms.bcmax",
        "choices": "policybridge_train.algorithms.choices",
        "exhaustive": "policybridge_train.algorithms.exhaustive",
        "es": "policybridge_train.algorithms.es",
        "linear": "policybridge_train.algorithms.linear",
        "ppo": "policybridge_train.algorithms.ppo",
    },
)
"""Each is a module with a struct ``Settings``, and ``train(training, settings)``."""

_PART_FAILED: Final = 0.5
"""The part of the cases that may fail before a version is no version to learn from."""


@dataclass
class Training:
    """A run.

    Attributes:
        task: of the policy.
        collector: compiles cases by policies.
        server: of the run.
        record: of the iterations so far.
        training: the cases to learn from.
        validation: the cases that choose among versions; an algorithm may learn nothing else from them.
        seed: of all chance.
        say: tells people how far it is.
        until: when to end, by `time.monotonic`; ``None`` for never.
        most: compiles of cases after which to end; ``None`` for no limit.
        before: the seconds that the run took before it was continued.
        compiles: of cases so far, those in the record included.
        promote: the alias of the best version; ``None`` for none.
        began: when it was started or continued, by `time.monotonic`.
        finished: called after each iteration.

    """

    task: Task
    collector: Collector
    server: TrainingServer
    record: Record
    training: Sequence[Case]
    validation: Sequence[Case]
    seed: int
    say: Callable[[str], None]
    until: float | None = None
    most: int | None = None
    before: float = 0.0
    compiles: int = 0
    promote: str | None = None
    began: float = field(default_factory=monotonic)
    finished: Callable[["Training"], None] = lambda _: None

    @property
    def over(self) -> bool:
        """Whether the time is up, or the number of compiles is reached."""
        late = self.until is not None and monotonic() >= self.until
        return late or (self.most is not None and self.compiles >= self.most)

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, that before it was continued included."""
        return self.before + monotonic() - self.began

    def asking(
        self, version: PolicyVersion | int, purpose: str = "training", exploration: Exploration | None = None
    ) -> Asking:
        """Say whom to ask for a version; the purpose is a label of the sessions."""
        number = version if isinstance(version, int) else version.version
        policy = f"{self.task.name}@{number}"
        return Asking(self.server.leader.address, policy, exploration, labels={"purpose": purpose})

    def publish(self, files: Mapping[str, bytes], config: str) -> PolicyVersion:
        """Publish a version of these files; ``config`` is the text of its ``policy.toml``."""
        with TemporaryDirectory(prefix="policybridge-train-") as folder:
            for name, data in files.items():
                (Path(folder) / name).write_bytes(data)
            return self.server.publish(self.task.name, Path(folder), config)

    def drawn(self, number: int, count: int) -> Sequence[Case]:
        """Draw the training cases of an iteration: the same for the same seed, and all if there are no more."""
        chance = random.Random(f"{self.seed} {number}")  # noqa: S311 - no secret
        return chance.sample(list(self.training), min(count, len(self.training)))

    def collected(self, cases: Sequence[Case], asking: Asking) -> list[Trajectory]:
        """Compile cases to learn from, and count them.

        Raises:
            UnavailableError: none of them compiled.

        """
        found = list(self.collector.collect(cases, asking))
        self.compiles += len(found)
        if found and not any(each.result.ok for each in found):
            raise UnavailableError(f"no case compiled, the first one so: {found[0].result.failure}")
        return found

    def validate(
        self, version: PolicyVersion, first: Callable[[Trajectory], Mapping[str, float]] | None = None
    ) -> dict[str, Mapping[str, float]]:
        """Compile all validation cases by a version; see `totals`. ``first`` gives totals before those of the task."""
        asking = self.asking(version, purpose="validation")
        trajectories = list(self.collector.collect(self.validation, asking))
        totals = self.totals(trajectories)
        before = {each.case.name: first(each) for each in trajectories if each.result.ok} if first else {}
        return {name: {**before.get(name, {}), **its} for name, its in totals.items()}

    def totals(self, trajectories: Sequence[Trajectory]) -> dict[str, Mapping[str, float]]:
        """Count compilations, and give their totals by case. Those that failed are told and left out.

        Raises:
            UnavailableError: half of them or more failed.

        """
        self.compiles += len(trajectories)
        failed = [trajectory for trajectory in trajectories if not trajectory.result.ok]
        for trajectory in failed[:3]:
            self.say(f"{trajectory.case.name}: {trajectory.result.failure}")
        if len(failed) >= _PART_FAILED * len(trajectories):
            raise UnavailableError(
                f"{len(failed)} of {len(trajectories)} cases failed, the first one so: {failed[0].result.failure}"
            )
        return {trajectory.case.name: trajectory.result.totals for trajectory in trajectories if trajectory.result.ok}

    def finish(
        self,
        number: int,
        version: PolicyVersion,
        costs: Mapping[str, Mapping[str, float]],
        settings: Mapping[str, float] | None = None,
    ) -> Iteration:
        """Record an iteration's version as done, and report its totals."""
        done = Iteration(
            number, version.version, version.digest, self.compiles, self.seconds, costs, dict(settings or {})
        )
        self.record.finish(done)
        first = self.record.iterations()[0].costs
        self._promote(done)
        self.finished(self)
        names = sorted({name for totals in costs.values() for name in totals})
        changes = ", ".join(f"{name} {100 * (factor(costs, first, name) - 1):+.2f} %" for name in names)
        self.say(f"iteration {number}: {version.name}@{version.version}, {self.compiles:,} compiles, {changes}")
        return done

    def best(self) -> Iteration:
        """Give the iteration that is best on the validation projects, the earliest of equals."""
        done = self.record.iterations()
        return min(done, key=lambda each: total_factor(each.costs, done[0].costs))

    def _promote(self, done: Iteration) -> None:
        if self.promote is not None and self.best().number == done.number:
            self.server.set_alias(self.task.name, self.promote, done.version)
            self.say(f"  it is the best so far, and now {self.task.name}@{self.promote}")


def total_factor(costs: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]]) -> float:
    """Give the factor of the task's first total, which chooses among versions."""
    first = next((name for totals in before.values() for name in totals), "")
    return factor(costs, before, first)


def factor(costs: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]], name: str) -> float:
    """Give the factor of a total over the cases that both have; 1 if nothing was measured."""
    both = sorted(costs.keys() & before.keys())
    old = sum(before[case].get(name, 0.0) for case in both)
    return sum(costs[case].get(name, 0.0) for case in both) / old if old else 1.0


def cases_of(cases: Iterable[Case], part: Part, split: Split | None = None) -> list[Case]:
    """Give the cases in a part of a split; ``None``: by their projects."""
    by = split or Split()
    return [case for case in cases if by.part(case.name, case.project) is part]
