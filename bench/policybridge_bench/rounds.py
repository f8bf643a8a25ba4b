"""Rounds: each measures every case once, one after the other, and each begins with another case."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policybridge_bench.results import Case, Measured, Round


@dataclass(frozen=True)
class Candidate:
    """A case, and the function that measures it once."""

    case: Case
    measure: Callable[[], Round]


def run_rounds(
    candidates: Sequence[Candidate], rounds: int, show: Callable[[list[Measured], str], None]
) -> list[Measured]:
    """Measure all candidates once in each round.

    ``show`` is called before each measurement, with the results so far and a line that names the next case.
    """
    measured = [Measured(case=candidate.case, rounds=[]) for candidate in candidates]
    for number in range(rounds):
        first = number * len(candidates) // rounds
        for index in [*range(first, len(candidates)), *range(first)]:
            show(measured, f"round {number + 1} of {rounds}: {candidates[index].case.name}")
            measured[index].rounds.append(candidates[index].measure())
    show(measured, "")
    return measured
