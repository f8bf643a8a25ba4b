"""What settings of the algorithm credit are worth on training projects that the trees have not seen.

    python -m tests.measures.credit_settings RUN --corpus DIR [--set NAME=VALUE,…]…

RUN is the folder of a run of ``credit``, whose flips are used again; nothing is flipped anew. The training projects are
dealt into five parts of about the same text. For each ``--set``, and for the defaults, trees are fitted five times
without the flips of a part, and the modules of that part are compiled by them. Printed is the change of all these
modules together, in percent. Validation and held-out projects are not compiled.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.algorithms.credit import Settings, fitted, model_of, policy_config
from policybridge_train.corpus.parts import Part
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.learning.record import Record
from policybridge_train.learning.training import Training, cases_of, factor
from policybridge_train.learning.trees import Trees
from policybridge_train.tasks.recipe import TaskRecipe, make_task
from policybridge_train.tasks.task import Case
from policybridge_train.train_command import add_task_options, options_of, pairs, settings_of
from policybridge_train.trajectories.server import TrainingServer
from policybridge_train.trajectories.trajectory import Collector

_NAME: Final = "python -m tests.measures.credit_settings"
_FOLDS: Final = 5

Costs = Mapping[str, Mapping[str, float]]
"""The totals of each case, by names."""


def main() -> int:
    """Compare settings; the exit status is 2 for what cannot be done."""
    options = _parser().parse_args()
    try:
        _compare(options)
    except PolicyBridgeError as error:
        sys.stderr.write(f"{_NAME}: {error}\n")
        return 2
    return 0


def _compare(options: argparse.Namespace) -> None:
    # Wrong settings are told before anything is compiled.
    asked = [
        (text or "defaults", settings_of(Settings, pairs(text.split(",") if text else [])))
        for text in ["", *options.set]
    ]
    given = options_of(options)
    task = make_task("inline", given)
    recipe = TaskRecipe.of(task, "inline", given, options.corpus)
    with (
        TemporaryDirectory(prefix="policybridge-bench-") as folder,
        farm_of(options) as farm,
        Record(options.run / "run.db", {}) as record,
        TrainingServer(Path(folder), host=farm.host) as server,
    ):
        farm.lead(server)
        cases = cases_of(task.cases(options.corpus), Part.TRAINING)
        folds = _Folds(Training(task, Collector(recipe, farm), server, record, cases, [], 0, print))
        for name, settings in asked:
            _show(name, folds.cases, folds.before, folds.compiled(settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_NAME, description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    add_task_options(parser)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE,…", help="repeatable")
    add_farm(parser)
    return parser


class _Folds:
    """The parts of the projects, with the flips of each.

    Attributes:
        cases: that the run has flips of.
        before: the totals of all cases by the compiler's own decisions.

    """

    def __init__(self, training: Training) -> None:
        self._training = training
        known = {case.name: case for case in training.training}
        self._pieces = [(known[name], data) for _, name, data in training.record.pieces(sys.maxsize) if name in known]
        learnt = {case.name for case, _ in self._pieces}
        self.cases = [case for case in training.training if case.name in learnt]
        self.before: Costs = self._compiled(Trees(), 1.0, self.cases)
        text: dict[str, float] = {}
        for case in self.cases:
            text[case.project] = text.get(case.project, 0.0) + self.before.get(case.name, {}).get("text", 0.0)
        self._parts = _dealt(text)

    def compiled(self, settings: Settings) -> Costs:
        """Compile all cases by trees that have not seen their projects."""
        found: dict[str, Mapping[str, float]] = {}
        for part in self._parts:
            seen = [data for case, data in self._pieces if case.project not in part]
            unseen = [case for case in self.cases if case.project in part]
            if unseen:
                found |= self._compiled(fitted(seen, settings, self._training.seed), settings.least, unseen)
        return found

    def _compiled(self, trees: Trees, least: float, cases: Sequence[Case]) -> Costs:
        training = self._training
        version = training.publish({"model.onnx": model_of(training.task, trees, least)}, policy_config())
        return training.totals(list(training.collector.collect(cases, training.asking(version))))


def _dealt(text: Mapping[str, float]) -> Sequence[set[str]]:
    """Deal projects into parts, the largest first, each to the part that has least."""
    parts: list[set[str]] = [set() for _ in range(_FOLDS)]
    for project in sorted(text, key=lambda name: (-text[name], name)):
        min(parts, key=lambda part: sum(text[each] for each in part)).add(project)
    return parts


def _show(name: str, cases: Sequence[Case], before: Costs, after: Costs) -> None:
    words = [f"{name}: {len(before.keys() & after.keys())} modules"]
    for language in ("", *sorted({case.language for case in cases})):
        some = {case.name: after[case.name] for case in cases if language in ("", case.language) and case.name in after}
        changes = ((total, 100 * (factor(some, before, total) - 1)) for total in ("text", "exec"))
        words += [f"{language or 'all'} {total} {percent:+.2f} %" for total, percent in changes]
    print(", ".join(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
