"""The processor time of a program beside that of another version of it.

The address of code changes its time by as much as decisions do (Mytkowicz et al., "Producing wrong data without doing
anything obviously wrong!", ASPLOS 2009): of some programs every version seemed 2 % faster. So the code of both is moved
from one pair of samples to the next. The address widens the interval, and no longer moves the factor.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_train.speed.confirming import Times, compare
from policybridge_train.speed.making import Making

_ALIGNED: Final = 16
"""The alignment of functions in bytes: x86-64's default."""

_PLACES: Final = 256
"""Code is moved by less than a page of 4 KiB."""

_STRIDE: Final = 101
"""Prime to the number of places: four in a row are four places in a line of 64 bytes."""


def compare_programs(making: Making, before: Mapping[str, Path], after: Mapping[str, Path], pairs: int) -> Times:
    """Time a program's version against another.

    Args:
        making: links and runs both.
        before: the objects of the other version, by module.
        after: the objects of the version, by module.
        pairs: of samples.

    Raises:
        PreconditionError: one cannot be linked or run, prints something else, or takes no measurable time.

    """
    # Not the output under valgrind: its processor has fewer instructions and shorter numbers.
    wanted = making.runner.time(making.linked(before, "a")[0]).output

    def timed(objects: Mapping[str, Path], letter: str) -> Callable[[int], float]:
        @lru_cache(maxsize=1)
        def program(space: int) -> Path:
            return making.linked(objects, letter, space)[0]

        def run(number: int) -> float:
            ran = making.runner.time(program(_space(number)))
            if ran.output != wanted:
                raise PreconditionError("--run prints something else in another run: nothing is confirmed or kept")
            return ran.seconds

        return run

    return compare(timed(before, "a"), timed(after, "b"), pairs)


def _space(number: int) -> int:
    """Give the bytes before the code of a pair; in two pairs each version is the first once."""
    return number // 2 * _STRIDE % _PLACES * _ALIGNED
