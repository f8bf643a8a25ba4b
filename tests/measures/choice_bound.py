"""What bounds a policy that chooses one alternative for each unit.

    python -m tests.measures.choice_bound --labels RUN CORPUS … [--plugins DIR]

RUN is the folder of a run of ``policybridge train passes --algo exhaustive``, whose labels are used again; nothing is
compiled. CORPUS has its modules. Printed is, by language and corpus, the change of the cost of all labelled units, in
percent, by

- constant: the alternative with the least cost in sum over all units;
- trees: those that are fitted to all units but those of an eighth of the projects, in which the unit's is;
- oracle: the best alternative of each unit, which nobody knows before.

Beside ``make corpus``: choice_bound_packages.txt names packages of C for ``policybridge corpus debian --list``, all of
which the rule puts into training by their names.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.learning.alternatives import Chooser, Labels
from policybridge_train.learning.record import Record
from policybridge_train.learning.trees import TreeSettings, fit
from policybridge_train.tasks.passes import PassesForSize
from policybridge_train.tasks.recipe import make_task
from policybridge_train.train_command import add_task_options, options_of

_NAME: Final = "python -m tests.measures.choice_bound"
_PARTS: Final = 8
_MARGIN: Final = 0.5
_SETTINGS: Final = TreeSettings(trees=120, leaves=31, rate=0.06, least=20, fraction=0.6, l2=20.0, most=100.0)


def main() -> int:
    """Compare; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog=_NAME, description=__doc__)
    parser.add_argument("--labels", nargs=2, action="append", required=True, type=Path, metavar=("RUN", "CORPUS"))
    add_task_options(parser)
    options = parser.parse_args()
    try:
        found = [each for run, corpus in options.labels for each in _read(run, corpus, options_of(options))]
        _tell(found)
    except PolicyBridgeError as error:
        sys.stderr.write(f"{_NAME}: {error}\n")
        return 2
    return 0


@dataclass(frozen=True)
class _Labelled:
    corpus: Path
    project: str
    language: str
    labels: Labels


def _read(run: Path, corpus: Path, options: Mapping[str, str]) -> list[_Labelled]:
    cases = {case.name: case for case in make_task("passes", options).cases(corpus)}
    columns = sum(spec.count for spec in PassesForSize.features)
    with Record(run / "run.db", {}) as record:
        pieces = [(cases[name], data) for _, name, data in record.pieces(1) if name in cases]
    return [
        _Labelled(corpus, case.project, case.language, Labels.unpacked(data, columns, PassesForSize.choices))
        for case, data in pieces
    ]


def _tell(found: Sequence[_Labelled]) -> None:
    if not any(len(each.labels) for each in found):
        raise InvalidError("the runs have no labels of these corpora")
    labels = Labels.joined([each.labels for each in found])
    projects, groups = (
        np.array([name for each, name in zip(found, names, strict=True) for _ in range(len(each.labels))])
        for names in ([each.project for each in found], [f"{each.language}, {each.corpus}" for each in found])
    )
    best = Chooser.constant(labels).best
    ways = {
        "constant": labels.costs[:, best],
        "trees": _by_trees(labels, projects, best),
        "oracle": labels.costs.min(axis=1),
    }
    for group in np.unique(groups):
        inside = groups == group
        before = labels.costs[inside, 0].sum(dtype=np.float64)
        words = [f"{group}: {inside.sum():,} units of {len(np.unique(projects[inside]))} projects"]
        costs = {name: its[inside].sum(dtype=np.float64) for name, its in ways.items()}
        words += [f"{name} {100 * (cost / before - 1):+.2f} %" for name, cost in costs.items()]
        print(", ".join(words), flush=True)


def _by_trees(labels: Labels, projects: npt.NDArray[np.str_], best: int) -> npt.NDArray[np.float32]:
    """Give the cost of each unit by trees that have not seen its project."""
    names, of_unit = np.unique(projects, return_inverse=True)
    if len(names) < 2:
        raise InvalidError("labels of one project alone tell nothing of another")
    costs = np.zeros(len(labels), np.float32)
    for part in range(min(_PARTS, len(names))):
        inside = of_unit % _PARTS == part
        chooser = _fitted(Labels(labels.rows[~inside], labels.costs[~inside]), best)
        chosen = chooser.choose(labels.rows[inside])
        costs[inside] = np.take_along_axis(labels.costs[inside], chosen[:, None], axis=1)[:, 0]
    return costs


def _fitted(labels: Labels, best: int) -> Chooser:
    beyond = labels.costs - labels.costs[:, [best]]
    others = [choice for choice in range(beyond.shape[1]) if choice != best and np.isfinite(beyond[:, choice]).all()]
    trees = {choice: fit(labels.rows, beyond[:, choice], _SETTINGS) for choice in others}
    return Chooser(beyond.shape[1], best, _MARGIN, trees)


if __name__ == "__main__":
    sys.exit(main())
