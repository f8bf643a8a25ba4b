"""Which functions of a program have costs of their own."""

from policybridge_train.speed.costs import owned, shares
from policybridge_train.tasks.callgrind import Counted
from tests.training.tuning.autotuning import compile_result


def test_a_function_has_costs_where_no_other_has_its_name_and_a_weak_one_in_the_first_module() -> None:
    results = {
        "a.o": compile_result(9, {"main": 4, "help": 2, "inline": 3}, [], "a", weak=("inline",)),
        "b.o": compile_result(9, {"work": 4, "help": 2, "inline": 3}, [], "b", weak=("inline",)),
    }
    found = owned(results)
    assert found == {"a.o": {"main", "inline"}, "b.o": {"work"}}
    counted = Counted(200, {"main": 20, "help": 50, "work": 100}, {}, {"main": 30})
    assert shares(results, counted, found) == {"main": 0.25, "inline": 0.0, "work": 0.5}
