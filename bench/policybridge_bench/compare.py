"""``--compare A.json B.json``: tell whether B is slower than A by more than a limit and by more than chance."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from policybridge_bench.options import fill
from policybridge_bench.results import Measured, Run, read_json
from policybridge_core.errors import InvalidError

FIGURES: Final = {"p50": False, "p99": False, "throughput": True, "client_cpu": False, "server_cpu": False}
"""The figures that are compared, and whether more is better."""

JUDGED: Final = ("p50", "throughput")
"""The figures that make a regression; the tail and the CPU of short rounds vary too much."""

_RESAMPLES: Final = 10_000
_SHARE: Final = (2.5, 97.5)
_TINY: Final = 1e-9


@dataclass(frozen=True)
class Compared:
    """One figure of one case in both runs.

    Attributes:
        case: its name.
        figure: one of `FIGURES`.
        before, after: medians over the rounds of A and of B.
        ratio: B's cost divided by A's, so that above 1 is worse; for throughput, A's figure divided by B's.
        low, high: the 95 % confidence interval of the ratio.

    """

    case: str
    figure: str
    before: float
    after: float
    ratio: float
    low: float
    high: float

    def is_worse(self, limit: float) -> bool:
        """Whether B is worse by more than ``limit`` times, and the whole interval is above 1."""
        return self.figure in JUDGED and self.ratio > limit and self.low > 1


def run(arguments: argparse.Namespace) -> int:
    """Compare two files, print, and give the exit status: 1 if B is worse."""
    fill(arguments)
    before, after = (read_json(file) for file in arguments.compare)
    if before.regime != after.regime:
        raise InvalidError(f"one run was {before.regime} and the other {after.regime}; their figures do not compare")
    return print_comparison(before, after, arguments.limit)


def print_comparison(before: Run, after: Run, limit: float, *, paired: bool = False) -> int:
    """Compare, print, and give the exit status: 1 if ``after`` is worse by more than ``limit`` times."""
    compared = compare(before, after, paired=paired)
    worse = [each for each in compared if each.is_worse(limit)]
    Console(width=160).print(_table(compared, limit))
    for each in worse:
        span = f"{each.low:.2f} to {each.high:.2f}"
        print(f"regression: {each.case}: {each.figure} is {each.ratio:.2f} times as bad ({span})")
    return 1 if worse else 0


def compare(before: Run, after: Run, *, paired: bool = False) -> list[Compared]:
    """Compare all cases that both runs have; ``paired``: they were measured in the same rounds, in turn.

    Raises:
        InvalidError: they have none in common.

    """
    others = {measured.case: measured for measured in after.cases}
    pairs = [(one, others[one.case]) for one in before.cases if one.case in others]
    if not pairs:
        raise InvalidError("the two runs have no case in common")
    return [each for one, other in pairs for figure in FIGURES if (each := _compare(one, other, figure, paired))]


def _compare(before: Measured, after: Measured, figure: str, paired: bool) -> Compared | None:
    old, new = ([getattr(each, figure) for each in measured.rounds] for measured in (before, after))
    if None in old or None in new or not old or not new:
        return None
    if FIGURES[figure]:
        ratio, low, high = ratios(new, old, paired=paired)
    else:
        ratio, low, high = ratios(old, new, paired=paired)
    return Compared(before.case.name, figure, float(np.median(old)), float(np.median(new)), ratio, low, high)


def ratios(before: Sequence[float], after: Sequence[float], *, paired: bool) -> tuple[float, float, float]:
    """Give after / before and its 95 % interval, by bootstrap over the rounds.

    The ratio is that of the medians; or, if the rounds are ``paired``, the median of the ratios within the rounds.
    """
    generator = np.random.default_rng(0)
    # A client or a server may have used no CPU that the clock could see.
    old, new = np.maximum(before, _TINY), np.maximum(after, _TINY)
    if paired:
        each = new / old
        ratio, drawn = np.median(each), np.median(generator.choice(each, (_RESAMPLES, len(each))), axis=1)
    else:
        ratio = np.median(new) / np.median(old)
        ups, downs = (np.median(generator.choice(rounds, (_RESAMPLES, len(rounds))), axis=1) for rounds in (new, old))
        drawn = ups / downs
    low, high = np.percentile(drawn, _SHARE)
    return float(ratio), float(low), float(high)


def _table(compared: Sequence[Compared], limit: float) -> Table:
    drawn = Table(caption="intervals by bootstrap over the rounds")
    for column in ("case", "figure", "A", "B", "times as bad", "95 %", ""):
        drawn.add_column(column, justify="left" if column in ("case", "figure", "") else "right", no_wrap=True)
    for each in compared:
        verdict = "worse" if each.is_worse(limit) else ""
        span = f"{each.low:.2f} to {each.high:.2f}"
        drawn.add_row(
            each.case, each.figure, f"{each.before:,.1f}", f"{each.after:,.1f}", f"{each.ratio:.2f}", span, verdict
        )
    return drawn
