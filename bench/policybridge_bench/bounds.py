"""Bounds on measured values, and whether a run kept them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from policybridge_bench.ratios import Baseline, find, find_baseline, ratio
from policybridge_bench.results import Measured


@dataclass(frozen=True)
class Bound:
    """A measured value and its bound."""

    text: str
    value: float
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def within(measured: Sequence[Measured], baseline: Baseline, limit: float, **fields: object) -> Iterator[Bound]:
    """Bound the p50 of each case with these fields: at most ``limit`` times the baseline's."""
    for each in find(measured, **fields):
        base = find_baseline(each.case, measured, baseline)
        if base is not None:
            yield Bound(f"{each.case.name}: p50 / {baseline}", ratio(each, base, "p50"), limit, at_least=False)


def print_bounds(bounds: Iterable[Bound]) -> None:
    """Print each bound, and mark missed ones."""
    for bound in bounds:
        word = "at least" if bound.at_least else "at most"
        print(f"{bound.text:<64} {bound.value:12.2f}   {word} {bound.limit:g}{'' if bound.holds else '   MISSED'}")
