"""``--compare A.json B.json``: whether B is slower than A, by more than chance and by more than a limit."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policybridge_bench.extras import library
from policybridge_bench.results import Measured, Run, read_json
from policybridge_core.errors import InvalidError

FIGURES: Final = {"p50": False, "p99": False, "throughput": True, "client_cpu": False, "server_cpu": False}
"""What is compared, and whether more of it is better."""

JUDGED: Final = ("p50", "throughput")
"""What a regression is judged by; the tail and the CPU of short rounds say too little."""

_RESAMPLES: Final = 10_000
_SHARE: Final = (2.5, 97.5)


@dataclass(frozen=True)
class Compared:
    """One figure of one case in both runs.

    Attributes:
        case: its name.
        figure: one of `FIGURES`.
        before, after: medians over the rounds of A and of B.
        ratio: how many times A's cost B's is: above 1 is worse, whichever way the figure goes.
        low, high: the interval that holds the ratio with 95 % confidence.

    """

    case: str
    figure: str
    before: float
    after: float
    ratio: float
    low: float
    high: float

    def is_worse(self, limit: float) -> bool:
        """Whether B is worse by more than ``limit`` times, and no round by chance made it so."""
        return self.figure in JUDGED and self.ratio > limit and self.low > 1


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and give the exit status: 1 where B is worse."""
    before, after = (read_json(file) for file in arguments.compare)
    if before.regime != after.regime:
        raise InvalidError(f"one run was {before.regime} and the other {after.regime}; these are not to be mixed")
    compared = compare(before, after)
    worse = [each for each in compared if each.is_worse(arguments.limit)]
    library("rich.console").Console(width=160).print(_table(compared, arguments.limit))
    for each in worse:
        span = f"{each.low:.2f} to {each.high:.2f}"
        print(f"regression: {each.case}: {each.figure} is {each.ratio:.2f} times as bad ({span})")
    return 1 if worse else 0


def compare(before: Run, after: Run) -> list[Compared]:
    """Compare all cases that both runs have.

    Raises:
        InvalidError: they have none in common.

    """
    others = {measured.case: measured for measured in after.cases}
    pairs = [(one, others[one.case]) for one in before.cases if one.case in others]
    if not pairs:
        raise InvalidError("the two runs have no case in common")
    return [each for one, other in pairs for figure in FIGURES if (each := _compare(one, other, figure))]


def _compare(before: Measured, after: Measured, figure: str) -> Compared | None:
    old, new = ([getattr(each, figure) for each in measured.rounds] for measured in (before, after))
    if None in old or None in new or not old or not new:
        return None
    orient: Callable[[float], float] = (lambda ratio: 1 / ratio) if FIGURES[figure] else (lambda ratio: ratio)
    low, high = sorted(orient(ratio) for ratio in interval(old, new))
    middle, later = float(np.median(old)), float(np.median(new))
    return Compared(before.case.name, figure, middle, later, orient(_ratio(middle, later)), low, high)


def interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Give the 95 % interval of the ratio of medians, after / before, by bootstrap over the rounds."""
    generator = np.random.default_rng(0)
    old, new = (
        np.median(generator.choice(np.asarray(rounds, float), (_RESAMPLES, len(rounds))), axis=1)
        for rounds in (before, after)
    )
    low, high = np.percentile(new / np.maximum(old, _TINY), _SHARE)
    return float(low), float(high)


_TINY: Final = 1e-9


def _ratio(before: float, after: float) -> float:
    return after / max(before, _TINY) if before != after else 1.0


def _table(compared: Sequence[Compared], limit: float) -> object:
    drawn = library("rich.table").Table(caption="intervals by bootstrap over the rounds")
    for column in ("case", "figure", "A", "B", "times as bad", "95 %", ""):
        drawn.add_column(column, justify="left" if column in ("case", "figure", "") else "right", no_wrap=True)
    for each in compared:
        verdict = "worse" if each.is_worse(limit) else ""
        span = f"{each.low:.2f} to {each.high:.2f}"
        drawn.add_row(
            each.case, each.figure, f"{each.before:,.1f}", f"{each.after:,.1f}", f"{each.ratio:.2f}", span, verdict
        )
    return drawn
