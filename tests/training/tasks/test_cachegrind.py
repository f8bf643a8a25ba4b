"""Reading cachegrind's output."""

import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.tasks.cachegrind import Misses, read_misses

OUTPUT = """desc: D1 cache:         32768 B, 64 B, 8-way associative
cmd: ./program
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
fl=???
fn=main
0 100 1 1 50 9 9 50 9 9
fn=nest
0 2000 1 1 900 30 2 400 5 1
fl=other.h
fn=nest
7 50 0 0 10 1 0 3 2 0
fn=nested
7 50 0 0 10 70 0 3 70 0
summary: 2200 2 2 970 110 11 456 86 10
""".splitlines()


def test_the_misses_of_a_function_are_those_of_all_its_parts() -> None:
    assert read_misses(OUTPUT, "nest") == Misses(data=38, instructions=2050)


@pytest.mark.parametrize(
    ("lines", "message"),
    [(OUTPUT[:6], "no counts of a function nest"), (["events: Ir", "fn=nest", "0 7"], "counts Ir, and not D1mr")],
)
def test_an_output_without_them_is_an_error(lines: list[str], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        read_misses(lines, "nest")
