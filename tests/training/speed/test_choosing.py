"""The choice among the programs of a search."""

from collections.abc import Mapping
from pathlib import Path

from policybridge_core.errors import PreconditionError
from policybridge_train.speed.choosing import Timing, fastest
from policybridge_train.speed.confirming import Times
from policybridge_train.speed.making import Whole
from policybridge_train.tasks.callgrind import Counted


def _programs(count: int) -> list[Whole]:
    return [Whole(Counted(1000 - number, {}, {}), 100, {}, {}, {"m": Path(f"{number}.o")}) for number in range(count)]


def _taking(seconds: Mapping[str, float], timed: list[str]) -> Timing:
    def timing(before: Mapping[str, Path], after: Mapping[str, Path]) -> Times:
        timed.append(after["m"].stem)
        factor = seconds.get(after["m"].stem, 1.0) / seconds.get(before["m"].stem, 1.0)
        return Times(factor, factor, factor, 10, 1.0)

    return timing


def test_an_earlier_program_that_takes_less_time_is_chosen_over_the_one_with_the_fewest_cycles() -> None:
    programs = _programs(4)
    assert fastest(programs, _taking({"0": 1.2, "1": 0.9, "2": 0.95}, [])) is programs[1]


def test_the_program_with_the_fewest_cycles_is_chosen_if_no_other_takes_less_time() -> None:
    programs = _programs(3)
    assert fastest(programs, _taking({"0": 1.0, "1": 1.1}, [])) is programs[2]


def test_one_program_of_each_quarter_of_a_search_is_timed() -> None:
    timed: list[str] = []
    programs = _programs(10)
    assert fastest(programs, _taking({"4": 0.8, "5": 0.7}, timed)) is programs[4]
    assert timed == ["1", "4", "6"]


def test_the_only_program_of_a_search_is_chosen_without_a_run() -> None:
    timed: list[str] = []
    programs = _programs(1)
    assert fastest(programs, _taking({}, timed)) is programs[0]
    assert not timed


def test_a_program_that_does_not_work_is_not_chosen() -> None:
    programs = _programs(3)
    taking = _taking({"1": 0.9}, [])

    def timing(before: Mapping[str, Path], after: Mapping[str, Path]) -> Times:
        if after["m"].stem == "0":
            raise PreconditionError("--run prints something else")
        return taking(before, after)

    assert fastest(programs, timing) is programs[1]
