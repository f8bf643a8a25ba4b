"""What bounds a policy that chooses one alternative for each unit.

    python -m tests.measures.choice_bound RUN --corpus DIR [--plugins DIR]

RUN is the folder of a run of ``policybridge train passes --algo exhaustive``, whose labels are used again; nothing is
compiled. Printed is, by language, the change of the cost of all labelled units, in percent, by

- constant: the alternative with the least cost in sum, for all units;
- elsewhere: for each project the alternative that costs least in all other projects;
- trees: those of the algorithm with its default settings, which have not seen the unit's project;
- oracle: the best alternative of each unit, which nobody knows before.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.algorithms.exhaustive import Settings
from policybridge_train.learning.alternatives import Chooser, Labels
from policybridge_train.learning.record import Record
from policybridge_train.learning.trees import TreeSettings
from policybridge_train.tasks.passes import PassesForSize
from policybridge_train.tasks.recipe import make_task
from policybridge_train.tasks.task import Case
from policybridge_train.train_command import add_task_options, options_of

_NAME = "python -m tests.measures.choice_bound"


def main() -> int:
    """Compare; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog=_NAME, description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    add_task_options(parser)
    options = parser.parse_args()
    try:
        task = make_task("passes", options_of(options))
        cases = {case.name: case for case in task.cases(options.corpus)}
        with Record(options.run / "run.db", {}) as record:
            pieces = [(cases[name], data) for _, name, data in record.pieces(1) if name in cases]
        for language in sorted({case.language for case, _ in pieces}):
            _tell(language, [piece for piece in pieces if piece[0].language == language])
    except PolicyBridgeError as error:
        sys.stderr.write(f"{_NAME}: {error}\n")
        return 2
    return 0


def _tell(language: str, pieces: Sequence[tuple[Case, bytes]]) -> None:
    columns = sum(spec.count for spec in PassesForSize.features)
    found = [(case.project, Labels.unpacked(data, columns, PassesForSize.choices)) for case, data in pieces]
    labels = Labels.joined([each for _, each in found])
    if not len(labels):
        raise InvalidError(f"the run has no labels of {language}")
    projects = np.array([project for project, each in found for _ in range(len(each))])
    before = labels.costs[:, 0].sum(dtype=np.float64)
    words = [f"{language}: {len(labels):,} units of {len(np.unique(projects))} projects"]
    words += [f"{name} {100 * (cost / before - 1):+.2f} %" for name, cost in _costs(labels, projects).items()]
    print(", ".join(words), flush=True)


def _costs(labels: Labels, projects: npt.NDArray[np.str_]) -> Mapping[str, float]:
    """Give the cost of all units by each way to choose."""
    costs, default = labels.costs.astype(np.float64), Settings()
    settings = TreeSettings(
        default.trees, default.leaves, default.rate, default.units, default.fraction, default.l2, default.most
    )
    elsewhere = trees = 0.0
    for project in np.unique(projects):
        inside = projects == project
        seen = Labels(labels.rows[~inside], labels.costs[~inside])
        if not len(seen):
            raise InvalidError("labels of one project alone tell nothing of another")
        elsewhere += costs[inside, Chooser.constant(seen).best].sum()
        chooser = Chooser.fitted(seen, list(projects[~inside]), [default.least], settings)
        trees += costs[inside, chooser.choose(labels.rows[inside])].sum()
    constant = costs[:, Chooser.constant(labels).best].sum()
    return {"constant": constant, "elsewhere": elsewhere, "trees": trees, "oracle": costs.min(axis=1).sum()}


if __name__ == "__main__":
    sys.exit(main())
