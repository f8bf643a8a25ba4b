"""A training run as TensorBoard's scalars."""

import math
from pathlib import Path

from tensorboardX import SummaryWriter

from policybridge_train.report.run import TrainingRun


def write_scalars(run: TrainingRun, folder: Path) -> None:
    """Write an event file: each measure's change in percent by number of compiles, in total and for each project.

    The scalars are called ``validation/MEASURE`` and ``validation/MEASURE/PROJECT``; TensorBoard shows the folder.

    Raises:
        OSError: the file cannot be written.

    """
    with SummaryWriter(str(folder)) as writer:
        for measure in run.measures:
            projects = sorted({name for each in run.iterations for name in each.costs})
            series = {f"validation/{measure}": run.changes(measure)}
            series |= {f"validation/{measure}/{project}": run.changes(measure, project) for project in projects}
            for name, values in series.items():
                for each, value in zip(run.iterations, values, strict=True):
                    if not math.isnan(value):
                        writer.add_scalar(name, 100 * value, each.compiles)
