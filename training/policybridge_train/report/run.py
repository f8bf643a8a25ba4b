"""The data of a report. Any algorithm can fill it, and it can be written as JSON."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_train.learning.record import Iteration

_BUCKETS: Final = 8


class ProjectRow(msgspec.Struct, frozen=True):
    """A policy's result on a project.

    Attributes:
        language: ``c``, ``c++``, …; empty where it does not matter.
        measure: ``text``, ``linked text``, ….
        before: the sum by the compiler's own decisions.
        after: the sum by the policy.

    """

    project: str
    language: str
    measure: str
    before: float
    after: float


class FlipRow(msgspec.Struct, frozen=True):
    """How often the policy departs from the compiler where a feature is within bounds.

    Attributes:
        low: the least value of the feature.
        high: the greatest value of it.
        decisions: how many there were.
        to_yes: how many the policy made "yes" where the compiler says "no".
        to_no: the opposite.

    """

    feature: str
    low: float
    high: float
    decisions: int
    to_yes: int
    to_no: int


class TrainingRun(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        title: of the run, for people.
        facts: what else is to be known of it, by name: the corpus, the seed, the compiler.
        iterations: as `Record.iterations` has them; the first one is the compiler's own decisions.
        projects: the best version's score.
        flips: where it departs from the compiler, see `flips_by_feature`.

    """

    title: str
    iterations: Sequence[Iteration]
    facts: Mapping[str, str] = {}
    projects: Sequence[ProjectRow] = ()
    flips: Sequence[FlipRow] = ()

    @property
    def measures(self) -> list[str]:
        """The names of the iterations' measures."""
        return sorted({name for each in self.iterations for totals in each.costs.values() for name in totals})

    def changes(self, measure: str, project: str | None = None) -> list[float]:
        """Give for each iteration the change of a sum since the first one, as a fraction; NaN where it is not known.

        Args:
            measure: one of `measures`.
            project: one project; ``None``: the sum over those that both iterations have.

        """
        first = self.iterations[0].costs if self.iterations else {}
        return [_change(first, each.costs, measure, project) for each in self.iterations]


def _change(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    measure: str,
    project: str | None,
) -> float:
    names = [project] if project is not None else sorted(before.keys() & after.keys())
    pairs = [
        (before[name][measure], after[name][measure])
        for name in names
        if measure in before.get(name, {}) and measure in after.get(name, {})
    ]
    whole = sum(old for old, _ in pairs)
    return sum(new for _, new in pairs) / whole - 1 if whole else float("nan")


def flips_by_feature(
    features: Mapping[str, npt.NDArray[np.float64]],
    default: npt.NDArray[np.bool_],
    decided: npt.NDArray[np.bool_],
    buckets: int = _BUCKETS,
) -> list[FlipRow]:
    """Count where a policy departs from the compiler, for about as many decisions in each range of each feature.

    Args:
        features: by name, the values of all decisions; shape [n] each. Features that never vary are left out.
        default: the compiler's own decisions; shape [n].
        decided: the policy's; shape [n].
        buckets: ranges of a feature, at most.

    """
    rows = []
    for name, values in features.items():
        edges = np.unique(np.quantile(values, np.linspace(0, 1, buckets + 1))) if len(values) else np.zeros(0)
        if len(edges) < 2:
            continue
        bucket = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        for index in np.unique(bucket):
            chosen = bucket == index
            to_yes, to_no = int((chosen & ~default & decided).sum()), int((chosen & default & ~decided).sum())
            within = values[chosen]
            rows.append(FlipRow(name, float(within.min()), float(within.max()), int(chosen.sum()), to_yes, to_no))
    return rows
