"""Chooses one of the programs that a search has found by their time.

The estimate of cycles misses latencies, ports and prefetching: late moves often save cycles alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from policybridge_core.errors import PreconditionError
from policybridge_train.speed.confirming import Times
from policybridge_train.speed.making import Whole

_MOST: Final = 4
"""Programs that are timed."""

Timing: TypeAlias = Callable[[Mapping[str, Path], Mapping[str, Path]], Times]
"""Times a program beside another one; both are objects by module."""


def fastest(found: Sequence[Whole], timing: Timing) -> Whole:
    """Give the program that takes the least time, of the last one and up to three before it.

    Args:
        found: programs, each with fewer cycles than those before it; not empty.
        timing: of a program of these beside the last one. One that raises `PreconditionError` is left out.

    """
    *others, last = _spread(found)
    return min([(1.0, last), *_factors(others, last, timing)], key=lambda each: each[0])[1]


def _factors(others: Sequence[Whole], last: Whole, timing: Timing) -> Iterator[tuple[float, Whole]]:
    for one in others:
        # It printed the same under valgrind alone.
        with suppress(PreconditionError):
            yield timing(last.objects, one.objects).factor, one


def _spread(found: Sequence[Whole]) -> list[Whole]:
    """Give the last program of each quarter of the search."""
    count = min(_MOST, len(found))
    return [found[len(found) * number // count - 1] for number in range(1, count + 1)]
