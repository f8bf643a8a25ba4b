"""What settings of the algorithm credit are worth on training projects that the trees have not seen.

    python -m policybridge_bench.credit_settings RUN --corpus DIR [--option NAME=VALUE]… [--set NAME=VALUE,…]…

RUN is the folder of a run of ``credit``, whose flips are used again; nothing is flipped anew. The training projects are
dealt into five parts of about the same text. For each ``--set``, and for the defaults, trees are fitted five times
without the flips of a part, and the modules of that part are compiled by them. Printed is the change of all these
modules together, in percent. Validation and held-out projects are not compiled.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_train.algorithms.credit import Settings, fitted, model_of, policy_config
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.learning.record import Record
from policybridge_train.learning.rollout import Roller
from policybridge_train.learning.server import TrainingServer
from policybridge_train.learning.trees import Trees
from policybridge_train.tasks.recipe import TaskRecipe, make_task
from policybridge_train.tasks.task import Asking, Case, Task

_FOLDS: Final = 5

Costs = Mapping[str, Mapping[str, float]]
"""The totals of each case, by names."""


def main() -> int:
    """Compare settings; the exit status is 0."""
    options = _parser().parse_args()
    pairs = dict(option.split("=", 1) for option in options.option)
    task = make_task("inline", pairs)
    cases = {case.name: case for case in task.cases(options.corpus)}
    with Record(options.run / "run.db", {}) as record:
        pieces = {(number, name): data for number, name, data in record.pieces(sys.maxsize) if name in cases}
    learnt = [cases[name] for name in sorted({name for _, name in pieces})]
    recipe = TaskRecipe.of(task, "inline", pairs, options.corpus)
    with (
        TemporaryDirectory(prefix="policybridge-bench-") as folder,
        farm_of(options) as farm,
        TrainingServer(Path(folder), host=farm.host) as server,
    ):
        farm.lead(server)
        folds = _Folds(task, Roller(recipe, farm), server, pieces, learnt)
        for text in ["", *options.set]:
            given = dict(pair.split("=", 1) for pair in text.split(",") if pair)
            settings = msgspec.convert(given, Settings, strict=False)
            _show(text or "defaults", learnt, folds.before, folds.compiled(settings))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m policybridge_bench.credit_settings", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the task; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE,…", help="repeatable")
    add_farm(parser)
    return parser


class _Folds:
    """The parts of the projects, and what was learnt of each.

    Args:
        task: that is compiled for.
        roller: compiles.
        server: has the policies.
        pieces: flips by iteration and case, as the record of a run has them.
        cases: that the flips are of.

    Attributes:
        before: the totals of all cases by the compiler's own decisions.

    """

    def __init__(
        self,
        task: Task,
        roller: Roller,
        server: TrainingServer,
        pieces: Mapping[tuple[int, str], bytes],
        cases: Sequence[Case],
    ) -> None:
        self._task, self._roller, self._server, self._pieces = task, roller, server, pieces
        self.before: Costs = dict(self._compiled(Trees(), 1.0, cases))
        text: dict[str, float] = {}
        for case in cases:
            text[case.project] = text.get(case.project, 0.0) + self.before.get(case.name, {}).get("text", 0.0)
        self._projects = {case.name: case.project for case in cases}
        self._parts = [[case for case in cases if case.project in part] for part in _dealt(text)]

    def compiled(self, settings: Settings) -> Costs:
        """Compile all cases by trees that have not seen their projects."""
        found: dict[str, Mapping[str, float]] = {}
        for part in self._parts:
            unseen = {case.project for case in part}
            seen = [data for (_, name), data in self._pieces.items() if self._projects[name] not in unseen]
            found |= self._compiled(fitted(seen, settings, seed=0), settings.least, part)
        return found

    def _compiled(self, trees: Trees, least: float, cases: Sequence[Case]) -> Iterator[tuple[str, Mapping[str, float]]]:
        with TemporaryDirectory(prefix="policybridge-bench-") as folder:
            (Path(folder) / "model.onnx").write_bytes(model_of(self._task, trees, least))
            version = self._server.publish(self._task.name, Path(folder), policy_config())
        asking = Asking(self._server.leader.address, f"{self._task.name}@{version.version}")
        for rollout in self._roller.roll(cases, asking):
            if rollout.ran.ok:
                yield rollout.case.name, rollout.ran.totals


def _dealt(text: Mapping[str, float]) -> Sequence[set[str]]:
    """Deal projects into parts, the largest first, each to the part that has least."""
    parts: list[set[str]] = [set() for _ in range(_FOLDS)]
    for project in sorted(text, key=lambda name: (-text[name], name)):
        min(parts, key=lambda part: sum(text[each] for each in part)).add(project)
    return parts


def _show(name: str, cases: Sequence[Case], before: Costs, after: Costs) -> None:
    both = [case for case in cases if case.name in before and case.name in after]
    words = [f"{name}: {len(both)} modules"]
    for language in ("", *sorted({case.language for case in both})):
        some = [case.name for case in both if language in ("", case.language)]
        for total in ("text", "exec"):
            old, new = (sum(costs[each][total] for each in some) for costs in (before, after))
            words.append(f"{language or 'all'} {total} {100 * (new / old - 1) if old else 0:+.2f} %")
    print(", ".join(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
