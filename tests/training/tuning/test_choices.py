"""Choices of passes as moves of a search, over compilers whose sizes are given."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key, read_store
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, Site, as_utf8
from policybridge_train.tuning.choices import OUTLINER, PRIOR, Choice, Gains, is_codegen
from policybridge_train.tuning.flips import CallGraph, Decided, Flip, passes_of
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.round import Round, Sharers
from policybridge_train.tuning.search import Search
from policybridge_train.tuning.storing import StoreKeeper
from tests.training.tuning.autotuning import compile_result

GAINS: Mapping[str, Mapping[str, int]] = {
    "one": {"skip early-machinelicm": 10, "skip machine-sink": 5, "skip block-placement": -8},
    "two": {"skip early-machinelicm": -20, "skip block-placement": 6},
    "three": {},
}
CALL = Site("1", "two", "three", False, False, False, tuple(10.0 for _ in NUMBERS))


def compiled(decided: Decided, late: int = 0) -> CompileResult:
    """Compile functions of 100 bytes, each smaller by the sum of its gains; ``late`` bytes more with two choices."""
    sizes = {}
    for name, gains in GAINS.items():
        known = [gains[each] for each in decided.passes.get(name, ()) if each in gains]
        sizes[name] = 100 - sum(known) + late * (len(known) > 1)
    return compile_result(sum(sizes.values()), sizes, (), "an object", module="0" * 16)


def searched(rounds: int, late: int = 0) -> Search:
    search, gains = Search.begin(compiled(Decided())), Gains()
    for _ in range(rounds):
        tried = Round(search, None, gains=gains)
        tried.settle(compiled(tried.decided, late))
        assert search.best_text <= search.default_text == 300
    search.take(search.decided, compiled(search.pinned(), late))
    return search


def chosen(search: Search) -> set[tuple[str, str]]:
    names = {name for gains in GAINS.values() for name in gains}
    return {(function, each) for function, its in search.best.passes.items() for each in its if each in names}


def test_each_function_gets_what_makes_it_smaller_and_nothing_that_makes_another_larger() -> None:
    search = searched(30)
    helpful = {("one", "skip early-machinelicm"), ("one", "skip machine-sink"), ("two", "skip block-placement")}
    assert chosen(search) == helpful
    assert search.best_text == 300 - 10 - 5 - 6
    assert search.spent == 32


def test_a_choice_that_does_not_help_beside_another_is_given_up() -> None:
    search = searched(30, late=7)
    assert ("one", "skip machine-sink") not in chosen(search)
    assert search.best_text == 300 - 10 - 6


def test_no_choice_is_tried_in_a_spared_function() -> None:
    search = Search.begin(compiled(Decided()))
    tried = Round(search, None, gains=Gains(), spared={"one"})
    assert set(tried.decided.passes) == {"two", "three"}


def test_choices_that_help_together_are_taken_back_one_by_one_where_one_of_them_does_not() -> None:
    search = Search.begin(compiled(Decided()))
    first = Round(search, None, gains=Gains())
    together = next(iter(PRIOR)).split(" & ")
    assert first.decided.passes == dict.fromkeys(GAINS, together)
    first.settle(compiled(first.decided))
    assert search.decided.passes == {"one": together}
    tried = {words for _ in PRIOR for words in _next(search)}
    assert set(together) <= tried


def test_the_parts_of_a_group_are_tried_alone_where_the_group_has_changed_the_function_and_nowhere_else() -> None:
    search, gains, tried = Search.begin(compiled(Decided())), Gains(), set[tuple[str, str]]()
    for _ in range(60):
        current = Round(search, None, gains=gains)
        tried |= {(move.function, move.words) for move, _ in current.moves if isinstance(move, Choice)}
        current.settle(compiled(current.decided))
    together = next(iter(PRIOR))
    assert {(function, together) for function in GAINS} <= tried
    parts = together.split(" & ")
    # The group makes `two` larger and leaves `three` as it is.
    assert {("two", each) for each in parts} <= tried
    assert not {("three", each) for each in parts} & tried


def _next(search: Search) -> list[str]:
    tried = Round(search, None, gains=Gains())
    tried.settle(compiled(tried.decided))
    return [move.words for move, _ in tried.moves if isinstance(move, Choice) and move.function == "one"]


def test_what_has_helped_in_other_functions_is_tried_first() -> None:
    gains = Gains()
    assert gains.parts()[0][0] == next(iter(PRIOR))
    gains.add(Choice("one", "skip machine-cse", 1), 100_000, -10_000)
    assert gains.parts()[0][0] == "skip machine-cse"


def test_a_function_tries_no_choice_in_the_compile_in_which_a_flip_touches_it() -> None:
    sizes = dict.fromkeys(GAINS, 100)
    search = Search.begin(compile_result(300, sizes, [CALL], "an object"))
    tried = Round(search, Ranking(), gains=Gains())
    assert tried.decided.inlining == {"1": True}
    assert set(tried.decided.passes) == {"one"}


@pytest.mark.parametrize(("function", "shares"), [("two", False), ("three", True), ("one", True)])
def test_a_choice_shares_a_compile_with_a_flip_that_inlines_its_function_and_stays(function: str, shares: bool) -> None:
    other = Site("2", "one", "three", False, False, False, CALL.numbers)
    graph = CallGraph({"two": [CALL], "one": [other]}, dict.fromkeys(GAINS, 100))
    sharers = Sharers(graph)
    assert sharers.take(Flip.of((CALL,), graph, inline=True))
    assert sharers.take_choice(Choice(function, "skip machine-cse", graph.set_of((function,)))) is shares


def test_after_the_outliner_only_code_generation_is_chosen() -> None:
    search = Search.begin(compiled(Decided()))
    search.decided = OUTLINER
    words = [words for _ in PRIOR for words in _next(search)]
    assert words
    assert all(map(is_codegen, words))
    assert not is_codegen("add sink@last")


def test_all_choices_that_are_tried_may_be_made() -> None:
    for words in PRIOR:
        assert list(Decided(passes={"f": words.split(" & ")}).choices())
    (outliner,) = OUTLINER.choices()
    assert outliner.key == ALL_FUNCTIONS


def test_the_name_of_a_function_that_is_no_utf8_keeps_its_key() -> None:
    raw = "drop\udcff%\n\u00e9"
    name = as_utf8(raw)
    assert name != raw
    (choice,) = Decided(passes={name: ["skip machine-cse"]}).choices()
    assert (choice.key, choice.function) == (function_key(raw), raw)
    assert passes_of([choice], [name, "another"]) == {name: ["skip machine-cse"]}


def test_a_move_that_is_taken_back_leaves_what_was_there() -> None:
    before = Decided({"1": False}, {"f": ["skip machine-cse"], "": ["add iroutliner@last"]})
    move = Decided({"1": True}, {"f": ["skip machine-cse", "set ext-tsp"], "g": ["set ext-tsp"]})
    after = before.turned(move)
    assert after == Decided({"1": True}, {"": ["add iroutliner@last"], "f": ["set ext-tsp"], "g": ["set ext-tsp"]})
    assert after.turned(move.back) == before


def test_a_search_begins_with_the_choices_that_the_store_has_for_functions_that_are_still_there(tmp_path: Path) -> None:
    store, module = tmp_path / "tuned.db", Module("a.c", tmp_path)
    search = searched(30)
    keeper = StoreKeeper(store, 22, "site")
    keeper.put(module, search)
    keeper.write()
    (section,) = read_store(store).sections
    assert {PassChoice(function_key("two"), "skip", "block-placement").identity} <= {
        each.identity for each in section.passes
    }
    edited = Search.begin(compile_result(100, {"one": 100}, (), "another", module="1" * 16))
    start = StoreKeeper(store, 22, "site").start(module, edited)
    assert start is not None
    assert {function: set(its) for function, its in start.passes.items()} == {"one": set(search.best.passes["one"])}
