"""The cycles that decisions about calls are expected to save."""

from policybridge_train.compiling.result import NUMBERS, Site
from policybridge_train.speed.calls import CallFlip, FlipGains
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.flips import CallGraph, flips_of
from policybridge_train.tuning.search import Search
from tests.training.tuning.autotuning import compile_result

_SIZES = {"main": 6000, "cold": 3000, "help": 1000}
_COUNTED = Counted(10_000, _SIZES, _SIZES, {}, {("main", "help"): 100})


def _site(key: str, caller: str, *, inlined: bool) -> Site:
    numbers = tuple(10.0 for _ in NUMBERS)
    return Site(key, caller, "help", default=inlined, taken=inlined, inlined=inlined, numbers=numbers)


_SITES = [
    _site("hot", "main", inlined=False),
    _site("never", "cold", inlined=False),
    _site("there", "cold", inlined=True),
]
_SEARCH = Search.begin(compile_result(10_000, _SIZES, _SITES, "m"))
_GRAPH = CallGraph(_SEARCH.sites, _SEARCH.sizes)
_FLIPS = {
    each.sites[0].key: CallFlip.counted(each, _SEARCH, _GRAPH, _COUNTED)
    for each in flips_of(_SEARCH.sites, _GRAPH)
    if len(each.sites) == 1
}


def _expected(gains: FlipGains, key: str) -> float:
    return gains.expected(_FLIPS[key], _SEARCH, _GRAPH)


def test_a_call_that_runs_often_is_expected_to_save_most() -> None:
    gains = FlipGains(10_000)
    assert _expected(gains, "hot") > 4 * _expected(gains, "never") > 0


def test_flips_that_saved_nothing_let_less_be_expected_of_the_others_of_their_side_but_for_the_calls() -> None:
    gains = FlipGains(10_000)
    before = {key: _expected(gains, key) for key in _FLIPS}
    gains.add(_FLIPS["never"], 9000, 0.0)
    assert _expected(gains, "never") == before["never"] / 10
    assert _expected(gains, "hot") > 0.9 * before["hot"]
    assert _expected(gains, "there") == before["there"]


def test_a_flip_that_saved_more_than_its_calls_lets_more_be_expected_of_the_others() -> None:
    gains = FlipGains(10_000)
    before = {key: _expected(gains, key) for key in _FLIPS}
    gains.add(_FLIPS["hot"], 7000, -(_FLIPS["hot"].calls + 70))
    assert _expected(gains, "never") > before["never"]
    gains.add(_FLIPS["there"], 4000, 500.0)
    assert _expected(gains, "there") < before["there"]


def test_functions_that_may_come_back_with_an_inlined_callee_are_affected() -> None:
    sites = [
        _site("outer", "main", inlined=False),
        Site("inner", "help", "deep", default=True, taken=True, inlined=True, numbers=_SITES[0].numbers),
        Site("inmost", "deep", "deepest", default=True, taken=True, inlined=True, numbers=_SITES[0].numbers),
        Site("kept", "help", "cold", default=True, taken=True, inlined=True, numbers=_SITES[0].numbers),
    ]
    search = Search.begin(compile_result(10_000, _SIZES, sites, "m"))
    graph = CallGraph(search.sites, search.sizes)
    (outer,) = (each for each in flips_of(search.sites, graph) if each.sites[0].key == "outer")
    affected = CallFlip.counted(outer, search, graph, _COUNTED).affected
    assert {*graph.names(affected)} == {"main", "help", "deep", "deepest"}
