"""Find cases and give the ratios between them."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from policybridge_bench.results import Case, Measured


@dataclass(frozen=True)
class Baseline:
    """The denominator of ratios: a contender's ``way``; if empty, the way of the case itself."""

    contender: str
    way: str = ""

    def __str__(self) -> str:
        return f"{self.contender} {self.way}".rstrip()


def find_baseline(case: Case, measured: Sequence[Measured], baseline: Baseline) -> Measured | None:
    """Find the baseline's case with the same generator, number of clients and rate.

    If the baseline has several of them, the one with the same payload is taken, then SerDes, then backend.
    """
    matching = [
        other
        for other in measured
        if (other.case.contender, other.case.way) == (baseline.contender, baseline.way or case.way)
        and all(getattr(other.case, name) == getattr(case, name) for name in ("generator", "clients", "rate"))
    ]

    def likeness(other: Measured) -> tuple[bool, ...]:
        return tuple(getattr(other.case, name) == getattr(case, name) for name in ("payload", "serdes", "backend"))

    return max(matching, key=likeness, default=None)


def find(cases: Sequence[Measured], **fields: object) -> list[Measured]:
    """Give the cases that were measured and whose `Case` has these values."""
    return [each for each in cases if each.rounds and all(getattr(each.case, name) == fields[name] for name in fields)]


def ratio(one: Measured, other: Measured, figure: str) -> float:
    """Give the median of the ratios within each round."""
    return _paired(operator.truediv, one, other, figure)


def difference(one: Measured, other: Measured, figure: str) -> float:
    """Give the median of the differences within each round."""
    return _paired(operator.sub, one, other, figure)


def _paired(operation: Callable[[float, float], float], one: Measured, other: Measured, figure: str) -> float:
    pairs = zip(one.rounds, other.rounds, strict=False)
    return float(median(operation(getattr(mine, figure), getattr(theirs, figure)) for mine, theirs in pairs))
