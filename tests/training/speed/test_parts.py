"""Which moves are accepted, and which are given up where a program's text is too large."""

import math
from pathlib import Path

from policybridge_train.compiling.module import Module
from policybridge_train.speed.calls import FlipGains
from policybridge_train.speed.costs import owned
from policybridge_train.speed.parts import Part, Region, Room, Rules, Seen, too_much
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Choice, Gains
from policybridge_train.tuning.flips import CallGraph
from policybridge_train.tuning.search import Search
from tests.training.tuning.autotuning import compile_result


def test_what_saves_least_for_its_bytes_is_given_up_until_the_text_fits() -> None:
    best, poor, worst = (
        Region(frozenset("a"), 900, 100),
        Region(frozenset("bc"), 200, 100),
        Region(frozenset("d"), 10, 60),
    )
    smaller = Region(frozenset("e"), 0, -100)
    regions = [best, poor, worst, smaller]
    assert too_much(regions, 20) == ({"d"}, 60)
    assert too_much(regions, 61) == ({"b", "c", "d"}, 160)
    assert too_much(regions, 1000) == ({"a", "b", "c", "d"}, 260)


def test_nothing_is_given_up_where_no_function_has_grown() -> None:
    assert too_much([Region(frozenset("a"), 900, 0)], 16) == (set(), 0)


def _settled(room: float, *grown: int, cycles: int = 1000) -> tuple[Part, set[str]]:
    """Settle a choice for each function of 1000 bytes, which saves a tenth of 10,000 cycles and adds some bytes."""
    names = [f"f{number}" for number in range(len(grown))]
    module = compile_result(1000, dict.fromkeys(names, 1000), [], "m")
    functions = owned({"m": module})["m"]
    before = Seen.of(module, Counted(10_000, dict.fromkeys(names, 2000), {}, {}), functions)
    search = Search.begin(before.result)
    part = Part(Module("m", Path()), functions, search, before.bytes, before.bytes)
    graph = CallGraph(search.sites, search.sizes)
    moves = [Choice(name, "skip sink", graph.set_of([name])) for name in names]
    sizes = {name: 1000 + more for name, more in zip(names, grown, strict=True)}
    counted = Counted(10_000, dict.fromkeys(names, 2000 - cycles), {}, {})
    rules = Rules(Room(room, room), Gains(prior={"skip sink": 0.001}), FlipGains(10_000), 10_000)
    return part, part.settle(moves, Seen.of(compile_result(1000, sizes, [], "n"), counted, functions), rules)


def test_a_move_that_saves_too_little_for_its_bytes_is_not_accepted() -> None:
    _, changed = _settled(1000, 160, 800, cycles=10)
    assert changed == {"f0"}
    assert _settled(1000, 160, 800)[1] == {"f0", "f1"}


def test_a_move_for_which_the_program_never_has_room_is_not_tried_again() -> None:
    part, changed = _settled(100, 160, 64, 64)
    assert changed == {"f1"}
    assert [math.isnan(tried.credit) for tried in part.search.tried.values()] == [True, False, False]


def test_a_module_learns_what_a_function_costs_after_another_module_s_move() -> None:
    part, _ = _settled(1000, 16, 16)
    part.learn({"f0": 7.0, "other": 9.0})
    assert part.search.sizes == {"f0": 7, "f1": 1000}
