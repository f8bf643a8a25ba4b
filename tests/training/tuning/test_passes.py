"""The search for passes, over compilers whose sizes are given."""

from collections.abc import Mapping, Sequence

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tuning.passes import ORDER, PassSearch

GAINS: Mapping[str, Mapping[str, int]] = {
    "one": {"early-machinelicm": 10, "loop-reduce": 5, "block-placement": -8},
    "two": {"early-machinelicm": -20, "block-placement": 6},
    "three": {},
}


class Sizes:
    """Compiles functions of 100 bytes, each smaller by the sum of its gains; `late` bytes more with two choices."""

    def __init__(self, late: int = 0) -> None:
        self.compiles: list[Sequence[PassChoice]] = []
        self._late = late

    def __call__(self, choices: Sequence[PassChoice]) -> CompileResult | None:
        self.compiles.append(choices)
        costs = {name: self._size(name, choices) for name in GAINS}
        return CompileResult(costs=costs, totals={"text": sum(costs.values())})

    def _size(self, name: str, choices: Sequence[PassChoice]) -> float:
        own = [each.name for each in choices if each.key in (function_key(name), ALL_FUNCTIONS)]
        known = [GAINS[name][each] for each in own if each in GAINS[name]]
        return 100 - sum(known) + self._late * (len(known) > 1)


def test_each_function_gets_what_makes_it_smaller_and_nothing_that_makes_another_larger() -> None:
    sizes = Sizes()
    search = PassSearch(sizes, 30)
    search.run()
    chosen = {(each.function, each.name) for each in search.best}
    assert chosen == {("one", "early-machinelicm"), ("one", "loop-reduce"), ("two", "block-placement")}
    assert (search.text, search.best_text) == (300, 300 - 10 - 5 - 6)
    assert len(sizes.compiles) <= 30


def test_a_choice_that_does_not_help_beside_another_is_given_up() -> None:
    search = PassSearch(Sizes(late=7), 30)
    search.run()
    assert ("one", "loop-reduce") not in {(each.function, each.name) for each in search.best}
    assert search.best_text == 300 - 10 - 6


def test_a_budget_is_kept_and_the_module_is_never_larger() -> None:
    for budget in range(1, 12):
        sizes = Sizes(late=50)
        search = PassSearch(sizes, budget)
        search.run()
        assert len(sizes.compiles) <= budget
        assert search.best_text <= search.text == 300


def test_a_module_that_does_not_compile_has_no_choices() -> None:
    search = PassSearch(lambda _: None, 16)
    search.run()
    assert (search.text, search.best) == (0, ())


def test_all_choices_that_are_tried_may_be_made() -> None:
    assert len({PassChoice(ALL_FUNCTIONS, *words).identity for words in ORDER}) == len(ORDER)
