"""The result of a training run as JSON, for scripts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from policybridge_core.json_text import json_text
from policybridge_train.learning.training import Training, factor


class TrainedVersion(msgspec.Struct, frozen=True):
    """A version that the run published.

    Attributes:
        compiles: of all cases since the run began.
        seconds: of wall time since then.
        changes: of each measure over the validation cases, against the first version: −0.05 is 5 % less.

    """

    version: int
    digest: str
    compiles: int
    seconds: float
    changes: Mapping[str, float]


class TrainingResult(msgspec.Struct, frozen=True):
    """A run that has ended.

    Attributes:
        policy: the name of the policy.
        best: the version that is best on the validation cases.
        folder: of its files.
        versions: in the order of their making; the first is the compiler's own decisions.

    """

    policy: str
    best: int
    folder: str
    versions: Sequence[TrainedVersion]


def result_json(run: Training, folder: Path) -> str:
    """Give a `TrainingResult` of the run in this folder."""
    done = run.record.iterations()
    first, best = done[0].costs, run.best().version
    measures = sorted({name for totals in first.values() for name in totals})
    versions = [
        TrainedVersion(
            each.version,
            each.digest,
            each.compiles,
            each.seconds,
            {name: factor(each.costs, first, name) - 1 for name in measures},
        )
        for each in done
    ]
    made = folder / "policies" / run.task.name / str(best)
    result = TrainingResult(run.task.name, best, str(made), versions)
    return json_text(result)
