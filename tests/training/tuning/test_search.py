"""What a search makes of its compiles, on measurements written by hand."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from policybridge_client.decisions import read_store
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, Site
from policybridge_train.tuning import ranking as rankings
from policybridge_train.tuning.flips import CallGraph, Decided, Flip, Group
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import FEATURES, Ranking
from policybridge_train.tuning.round import Round, Sharers
from policybridge_train.tuning.search import Accepted, Search
from policybridge_train.tuning.storing import StoreKeeper
from tests.training.tuning.autotuning import compile_result

CALLS = {"one": ("a", "helper"), "two": ("b", "helper"), "three": ("c", "other")}
"""Caller and callee, by the site's key."""


def site(key: str, *, taken: bool) -> Site:
    return Site(key, *CALLS[key], default=False, taken=taken, inlined=taken, numbers=NUMBERS_OF_A_SITE)


def compiled(functions: Mapping[str, int], taken: Mapping[str, bool], digest: str = "") -> CompileResult:
    """Give what a compile came to; the text is the functions' alone."""
    sites = [site(key, taken=taken.get(key, False)) for key in CALLS]
    text = sum(functions.values())
    return compile_result(text, functions, sites, "an object", module=digest)


NUMBERS_OF_A_SITE = tuple(10.0 for _ in NUMBERS)
DEFAULT = {"a": 100, "b": 100, "c": 100, "helper": 40, "other": 40}


def test_flips_of_different_functions_share_a_compile_and_each_has_its_own_credit() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    tried = Round(search, Ranking())
    turned = {key for key, inline in tried.decided.inlining.items() if inline}
    # Both calls of the helper are turned as one flip, because the helper goes with the last of them.
    assert turned == set(CALLS)
    labels = tried.settle(compiled({"a": 120, "b": 110, "c": 150}, dict.fromkeys(turned, True)))
    assert sorted(credit for _, credit in labels) == [-10, 10]
    assert search.decided == Decided({"one": True, "two": True})
    assert search.sizes == {"a": 120, "b": 110, "c": 100, "other": 40}


def test_no_flip_touches_a_spared_function() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    tried = Round(search, Ranking(), spared={"a"})
    assert {key for key, inline in tried.decided.inlining.items() if inline} == {"two", "three"}


def test_the_order_of_functions_after_a_round_is_that_of_the_compile_and_not_of_hashes() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    names = [f"function {number}" for number in range(40)]
    search.update(compiled(dict.fromkeys(names, 1), {}), set(names))
    assert list(search.sizes) == [*DEFAULT, *names]


def test_calls_of_a_function_that_stays_share_a_compile_and_its_last_call_waits() -> None:
    callers = {"1": "a", "2": "b", "3": "c"}
    sites = [Site(key, caller, "helper", False, False, False, NUMBERS_OF_A_SITE) for key, caller in callers.items()]
    graph = CallGraph({one.caller: [one] for one in sites}, DEFAULT)
    sharers = Sharers(graph)
    singles = [Flip.of((one,), graph, inline=True) for one in sites]
    assert [sharers.take(flip) for flip in singles] == [True, True, False]
    whole = Flip.of(tuple(sites), graph, inline=True, group=Group.ALL)
    assert set(graph.names(whole.affected)) == {"a", "b", "c", "helper"}
    assert not sharers.take(whole)
    assert Sharers(graph).take(whole)


def test_a_call_is_not_inlined_in_the_compile_that_changes_the_function_which_comes_in() -> None:
    inner = Site("1", "helper", "other", False, False, False, NUMBERS_OF_A_SITE)
    outer = Site("2", "a", "helper", False, False, False, NUMBERS_OF_A_SITE)
    graph = CallGraph({"helper": [inner], "a": [outer]}, DEFAULT)
    for first, second in ((inner, outer), (outer, inner)):
        sharers = Sharers(graph)
        assert sharers.take(Flip.of((first,), graph, inline=True))
        assert not sharers.take(Flip.of((second,), graph, inline=True))


def test_a_round_does_not_accept_what_has_met_the_flips_that_another_round_accepted_meanwhile() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    first, second = Round(search, Ranking()), Round(search, Ranking())
    first.settle(compiled({"a": 110, "b": 110, "c": 150, "other": 40}, dict.fromkeys(CALLS, True)))
    labels = second.settle(compiled({"a": 100, "b": 100, "c": 80, "other": 40}, dict.fromkeys(CALLS, True)))
    # The credits hold, but those of two callers for what they are no longer.
    assert sorted(credit for _, credit in labels) == [-40, -20]
    assert search.sizes == {"a": 110, "b": 110, "c": 80, "other": 40}
    assert len(search.accepted) == 2


def test_flips_that_cost_bytes_one_by_one_are_tried_together() -> None:
    sites = [Site(key, "a", f"f{key}", False, False, False, NUMBERS_OF_A_SITE) for key in "123"]
    sizes = {"a": 100, "f1": 40, "f2": 40, "f3": 40}

    def after(taken: Mapping[str, bool], size: int) -> CompileResult:
        found = [replace(one, taken=taken.get(one.key, False), inlined=taken.get(one.key, False)) for one in sites]
        return compile_result(size + 120, {**sizes, "a": size}, found, "an object")

    search = Search.begin(after({}, 100))
    # All change one function, so each has a compile of its own.
    costs = {"1": 5, "2": 90, "3": 7}
    while len(search.tried) < len(costs):
        alone = Round(search, Ranking())
        (turned,) = [key for key, inline in alone.decided.inlining.items() if inline]
        assert len(alone.settle(after(alone.decided.inlining, 100 + costs[turned]))) == 1
    together = Round(search, Ranking())
    assert together.decided.inlining == {"1": True, "2": False, "3": True}
    assert together.settle(after(together.decided.inlining, 95)) == []
    assert search.decided == Decided({"1": True, "3": True})
    assert search.best_text == 95 + 120


def test_rounds_side_by_side_try_different_flips() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    first = Round(search, Ranking())
    second = Round(search, Ranking(), [first])
    assert first.names
    assert second.names
    assert first.names.isdisjoint(second.names)


def test_a_round_is_tried_once_and_one_that_never_ended_is_tried_again() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    first = Round(search, Ranking())
    assert Round(search, Ranking()).decided == first.decided
    first.fail()
    assert (search.spent, search.idle) == (2, 1)
    assert first.names.isdisjoint(Round(search, Ranking()).names)


def test_what_flips_have_made_larger_together_is_turned_back_in_the_next_compile() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    for key, functions in (("one", ["a", "helper"]), ("two", ["b", "helper"]), ("three", ["c", "other"])):
        search.accept(Accepted(Decided({key: True}), functions))
    taken = dict.fromkeys(CALLS, True)
    search.take(search.decided, compiled({"a": 90, "b": 90, "c": 90, "helper": 80, "other": 40}, taken))
    assert not search.is_checked
    assert search.pinned() == Decided({"one": False, "two": False, "three": True})
    assert search.sizes == {**DEFAULT, "c": 90}


def test_accepted_moves_whose_functions_are_given_up_are_turned_back_and_the_others_stay() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    for key, (caller, _) in (item for item in CALLS.items() if item[0] != "two"):
        search.accept(Accepted(Decided({key: True}), [caller]))
    assert search.regions == [{"a"}, {"c"}]
    search.go_on(search.decided, compiled({**DEFAULT, "a": 90, "c": 90}, {"one": True, "three": True}), ["c"])
    assert search.pinned().inlining == {"one": True, "two": False, "three": False}
    assert (search.sizes["a"], search.sizes["c"]) == (90, 100)
    assert not search.is_checked


def test_a_site_that_was_turned_twice_is_turned_back_to_what_it_was_first() -> None:
    search = Search.begin(compiled(DEFAULT, {}))
    search.accept(Accepted(Decided({"one": True}), ["a", "helper"]))
    search.accept(Accepted(Decided({"one": False}), ["a", "helper"]))
    search.take(search.decided, compiled({**DEFAULT, "a": 120}, {}))
    assert search.pinned().inlining["one"] is False


def test_a_flip_can_change_all_that_its_caller_is_inlined_into() -> None:
    sites = {"top": [Site("1", "top", "a", False, True, True, ())], "a": [site("one", taken=False)]}
    graph = CallGraph(sites, DEFAULT)
    assert set(graph.names(graph.affected(sites["a"], inline=True))) == {"top", "a", "helper"}
    assert (graph.left["a"], graph.left["helper"]) == (0, 1)
    # Calls of a function that the object has no more are gone with it.
    assert CallGraph(sites, {"top"}).left["helper"] == 0


def test_the_labels_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankings, "_MOST_LABELS", 50)
    ranking = Ranking()
    # Of one column nothing is known, as before the first flips have a credit.
    ranking.add(([math.nan, *[float(n)] * (len(FEATURES) - 1)], float(n)) for n in range(1000))
    assert len(ranking._labels) == 50
    # The early ones and the late ones are among them.
    kept = sorted(label for _, label in ranking._labels)
    assert kept[0] < 300
    assert kept[-1] > 700
    assert ranking.predict([[1.0] * len(FEATURES)])


def test_two_modules_of_one_source_have_each_their_section_also_while_one_is_not_tuned_yet(tmp_path: Path) -> None:
    store = tmp_path / "tuned.db"
    modules = [Module(name, tmp_path, source="a.c") for name in ("static/a", "shared/a")]
    digests = {"static/a": "0" * 16, "shared/a": "1" * 16}
    for names in (digests, ["shared/a"], ["static/a"]):
        keeper = StoreKeeper(store, 22, "site", tmp_path)
        keeper.expect(modules)
        for module in modules:
            if module.name in names:
                search = Search.begin(compiled(DEFAULT, {}, digests[module.name]))
                search.best = Decided({"0123456789abcdef": True})
                keeper.put(module, search)
        keeper.write()
        assert {section.heading.digest for section in read_store(store).sections} == set(digests.values())


def test_a_module_that_thinlto_links_into_several_programs_has_a_section_for_each(tmp_path: Path) -> None:
    parts = [
        LinkedModule("project/a", tmp_path, source="a.c", mode="thin", words=(f"--entry={program}",))
        for program in ("one", "two", "three")
    ]
    keeper = StoreKeeper(tmp_path / "tuned.db", 22, "site", tmp_path)
    keeper.expect(parts)
    searches = [Search.begin(compiled(DEFAULT, {}, digit * 16)) for digit in "122"]
    for part, search, saved in zip(parts, searches, (10, 20, 30), strict=True):
        search.best = Decided({f"{saved:016}": True})
        search.best_text -= saved
        keeper.put(part, search)
    keeper.write()
    found = {each.heading.digest: each.answers for each in read_store(tmp_path / "tuned.db").sections}
    assert found == {"1" * 16: {f"{10:016}": True}, "2" * 16: {f"{30:016}": True}}
    # One that made its program larger counts, though another program of the same module gains.
    searches[1].refused = "an object"
    keeper.put(parts[1], searches[1])
    keeper.put(parts[2], searches[2])
    keeper.write()
    found = {each.heading.digest: each.answers for each in read_store(tmp_path / "tuned.db").sections}
    assert found == {"1" * 16: {f"{10:016}": True}, "2" * 16: {}}


@pytest.mark.parametrize("order", [("one/a", "two/a"), ("two/a", "one/a")])
@pytest.mark.parametrize("is_written_between", [False, True])
def test_a_module_without_decisions_does_not_get_those_of_another_module_of_its_source(
    tmp_path: Path, order: Sequence[str], is_written_between: bool
) -> None:
    modules = {name: Module(name, tmp_path, source="a.c") for name in order}
    digests = {"one/a": "1" * 16, "two/a": "2" * 16}
    searches = {name: Search.begin(compiled(DEFAULT, {}, digest)) for name, digest in digests.items()}
    searches["one/a"].best = Decided({"0123456789abcdef": True})
    keeper = StoreKeeper(tmp_path / "tuned.db", 22, "site", tmp_path)
    keeper.expect(modules.values())
    for name in order:
        keeper.put(modules[name], searches[name])
        if is_written_between:
            keeper.write()
    keeper.write()
    store = read_store(tmp_path / "tuned.db")
    for name, search in searches.items():
        section = store.section_for(keeper.heading(modules[name], search))
        assert section is not None
        assert section.answers == search.best.inlining
    # As where a program became larger with it.
    searches["one/a"].refused = "an object"
    keeper.put(modules["one/a"], searches["one/a"])
    keeper.write()
    assert not read_store(tmp_path / "tuned.db").sections


@pytest.mark.parametrize("order", [("static/a", "shared/a"), ("shared/a", "static/a")])
@pytest.mark.parametrize("refused", [False, True])
def test_modules_that_share_a_section_have_the_decisions_of_the_one_that_won_most_in_it(
    tmp_path: Path, order: Sequence[str], refused: bool
) -> None:
    # A library is compiled twice, for a shared and a static one: before optimisation the modules are the same.
    modules = {name: Module(name, tmp_path, source="a.c") for name in order}
    searches = {name: Search.begin(compiled(DEFAULT, {}, "0" * 16)) for name in order}
    searches["shared/a"].best = Decided({"0123456789abcdef": True})
    searches["shared/a"].best_text -= 10
    searches["shared/a"].refused = "an object" if refused else ""
    keeper = StoreKeeper(tmp_path / "tuned.db", 22, "site", tmp_path)
    keeper.expect(modules.values())
    for name in order:
        keeper.put(modules[name], searches[name])
        keeper.write()
    for name in order:
        keeper.put(modules[name], searches[name])
    keeper.write()
    sections = read_store(tmp_path / "tuned.db").sections
    assert [section.answers for section in sections] == ([] if refused else [{"0123456789abcdef": True}])


def test_the_decisions_of_a_store_stay_until_they_have_been_compiled(tmp_path: Path) -> None:
    store, module = tmp_path / "tuned.db", Module("a.c", tmp_path)
    search = Search.begin(compiled(DEFAULT, {}, "0" * 16))
    search.best = Decided({"0123456789abcdef": True})
    keeper = StoreKeeper(store, 22, "site")
    keeper.put(module, search)
    keeper.write()
    edited = Search.begin(compiled(DEFAULT, {}, "1" * 16))
    keeper = StoreKeeper(store, 22, "site")
    edited.start = keeper.start(module, edited)
    assert edited.start == search.best
    keeper.put(module, edited)
    keeper.write()
    assert [section.answers for section in read_store(store).sections] == [search.best.inlining]
    edited.take(Decided({"0123456789abcdef": True}), compiled({**DEFAULT, "a": 110}, {"one": True}))
    edited.start = None
    keeper.put(module, edited)
    keeper.write()
    assert not read_store(store).sections


def test_a_search_that_another_version_wrote_begins_again(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        progress.keep("module \udcff", Search.begin(compiled(DEFAULT, {})))
        found = progress.search("module \udcff")
        assert found is not None
        assert found.sizes == DEFAULT
        progress._database.execute("UPDATE searches SET search = x'81a0c0'")
        assert progress.search("module \udcff") is None
