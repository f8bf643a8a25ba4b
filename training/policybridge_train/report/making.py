"""The report of a run, from its record and one more compilation of the validation projects by the best version."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np

from policybridge_server.page.runs import ShownIteration, ShownProject, ShownRun, write_run
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training
from policybridge_train.report.page import write_report
from policybridge_train.report.run import FlipRow, ProjectRow, TrainingRun, flips_by_feature
from policybridge_train.trajectories.trajectory import Trajectory


def report(training: Training, title: str, facts: Mapping[str, str], folder: Path) -> None:
    """Write ``report.html``, and TensorBoard's scalars where the package tensorboardX is installed."""
    best = training.best()
    trajectories = list(
        training.collector.collect(training.validation, training.asking(best.version, purpose="report"))
    )
    iterations = [_by_project(each, training) for each in training.record.iterations()]
    run = TrainingRun(
        title, iterations, facts, _projects(iterations, best.number, training), _flips(training, trajectories)
    )
    write_report(run, folder / "report.html")
    try:
        from policybridge_train.report.tensorboard import write_scalars  # noqa: PLC0415 - its package is an extra
    except ImportError:
        return
    write_scalars(run, folder / "tensorboard")


def show(training: Training, title: str, facts: Mapping[str, str], folder: Path) -> None:
    """Write the iterations so far, for the page of a server with ``--runs``; see `policybridge_server.page.runs`."""
    done = training.record.iterations()
    best = training.best()
    run = TrainingRun(title, [_by_project(each, training) for each in done])
    changes = {measure: run.changes(measure) for measure in run.measures}
    iterations = [
        ShownIteration(
            each.number,
            each.version,
            each.compiles,
            each.seconds,
            {name: values[index] for name, values in changes.items() if isfinite(values[index])},
        )
        for index, each in enumerate(done)
    ]
    projects = [
        ShownProject(row.project, row.measure, row.before, row.after)
        for row in _projects(run.iterations, best.number, training)
    ]
    write_run(ShownRun(title, facts, iterations, best.version, projects), folder)


def _by_project(iteration: Iteration, training: Training) -> Iteration:
    costs: dict[str, dict[str, float]] = {}
    for case in training.validation:
        into = costs.setdefault(case.project, {})
        for name, value in iteration.costs.get(case.name, {}).items():
            into[name] = into.get(name, 0.0) + value
    return msgspec.structs.replace(iteration, costs=costs)


def _projects(iterations: Sequence[Iteration], best: int, training: Training) -> list[ProjectRow]:
    languages = {case.project: case.language for case in training.validation}
    before, after = iterations[0].costs, next(each for each in iterations if each.number == best).costs
    return [
        ProjectRow(project, languages[project], measure, value, after[project][measure])
        for project in sorted(before.keys() & after.keys())
        for measure, value in sorted(before[project].items())
        if measure in after[project]
    ]


def _flips(training: Training, trajectories: Sequence[Trajectory]) -> list[FlipRow]:
    """Tell where the policy departs from the compiler, for tasks whose advice is yes or no."""
    default = training.task.default
    names = [spec.name for spec in training.task.features if spec.name != default and spec.fixed and spec.count == 1]
    asked = [trajectory for trajectory in trajectories if len(trajectory)]
    if not default or not asked:
        return []
    rows = np.concatenate([trajectory.columns([default, *names]) for trajectory in asked]).astype(np.float64)
    decided = np.concatenate([trajectory.advice != 0 for trajectory in asked])
    features = {name: rows[:, index] for index, name in enumerate(names, 1)}
    return flips_by_feature(features, rows[:, 0] != 0, decided)
