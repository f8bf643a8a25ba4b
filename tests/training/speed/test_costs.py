"""Which functions a program has of each module, and their costs."""

from policybridge_train.speed.costs import Owned, owned, shares
from policybridge_train.tasks.callgrind import Counted
from tests.training.tuning.autotuning import compile_result

_RESULTS = {
    "a.o": compile_result(9, {"main": 4, "help": 2, "inline": 3}, [], "a", weak=("inline",)),
    "b.o": compile_result(9, {"work": 4, "help": 2, "inline": 5}, [], "b", weak=("inline",)),
    "c.o": compile_result(9, {"inline": 7}, [], "c", weak=("inline",)),
}


def _owned() -> dict[str, Owned]:
    return owned(_RESULTS)


def test_a_function_has_costs_where_no_other_has_its_name_and_a_weak_one_in_the_first_module() -> None:
    found = _owned()
    names = {module: each.names for module, each in found.items()}
    assert names == {"a.o": {"main", "inline"}, "b.o": {"work"}, "c.o": set()}
    counted = Counted(200, {"main": 20, "help": 50, "work": 100}, {}, {"main": 30})
    assert shares(_RESULTS, counted, found) == {"main": 0.25, "inline": 0.0, "work": 0.5}


def test_a_weak_function_that_the_first_module_drops_is_the_next_one_s() -> None:
    first, second, third = _owned().values()
    assert first.bytes({"main": 4, "help": 2, "inline": 3}) == {"main": 4, "help": 2, "inline": 3}
    assert first.bytes({"main": 9, "help": 2}) == {"main": 9, "help": 2, "inline": 5}
    assert second.bytes({"work": 4, "help": 2, "inline": 5}) == {"work": 4, "help": 2}
    assert third.bytes({"inline": 7}) == {}
    counted = Counted(90, {"main": 20, "inline": 70}, {}, {})
    assert first.costs(counted, {"main"}) == {"main": 20, "inline": 70}


def test_a_weak_function_costs_all_modules_that_call_it() -> None:
    first, second, _ = _owned().values()
    counted = Counted(90, {"inline": 70, "work": 20}, {}, {})
    assert second.costs(counted, ()) == {"work": 20, "inline": 70}
    assert first.shared == second.shared == {"inline"}


def test_a_function_that_no_module_had_costs_the_one_that_gets_it() -> None:
    first, second, _ = _owned().values()
    counted = Counted(90, {"new": 70, "main": 20}, {}, {})
    assert first.costs(counted, {"main", "help", "new"})["new"] == 70
    assert "new" not in second.costs(counted, {"work"})
    assert "help" not in first.costs(counted, {"main", "help"})
