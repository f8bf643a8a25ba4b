"""A search for speed whose text becomes too large, on compiles and runs written by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, Site
from policybridge_train.processes.process import Running
from policybridge_train.speed.making import Making
from policybridge_train.speed.running import Ran
from policybridge_train.speed.search import Asked, SpeedSearch
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.flips import Decided
from tests.training.tuning.autotuning import compile_result

_CALLERS = {"one": "fast", "two": "large"}
_BYTES = 1000
_CONSTANTS = 160
"""Bytes that the program gets with ``two``, which are no function's."""


class _Made:
    """Makes programs in which either call saves cycles, and costs 32 bytes of code, when it is inlined."""

    def __init__(self) -> None:
        self.running = Running()
        self.runner = self

    def compiled(self, modules: Sequence[tuple[Module, Decided]]) -> list[tuple[CompileResult, Path]]:
        ((_, decided),) = modules
        taken = {key for key in _CALLERS if decided.inlining.get(key, False)}
        sites = [_site(key, inline=key in taken) for key in _CALLERS]
        sizes = {caller: _BYTES + 32 * (key in taken) for key, caller in _CALLERS.items()} | {"help": 48, "ease": 48}
        return [(compile_result(sum(sizes.values()), sizes, sites, "m"), Path("-".join(sorted(taken))))]

    def linked(self, objects: Mapping[str, Path], letter: str) -> tuple[Path, int]:
        taken = set(filter(None, objects["m"].name.split("-")))
        return Path(letter, objects["m"]), 2 * _BYTES + 32 * len(taken) + _CONSTANTS * ("two" in taken)

    def count(self, program: Path) -> tuple[Counted, Ran]:
        own = {"fast": 5000 - 900 * ("one" in program.name), "large": 5000 - 100 * ("two" in program.name)}
        return Counted(sum(own.values()), own, own, {}), Ran("the same", 1.0)


def _site(key: str, *, inline: bool) -> Site:
    callee = {"one": "help", "two": "ease"}[key]
    return Site(key, _CALLERS[key], callee, default=False, taken=inline, inlined=inline, numbers=_NUMBERS)


_NUMBERS = tuple(10.0 for _ in NUMBERS)


def test_the_moves_that_save_most_for_their_bytes_stay_where_the_text_is_too_large() -> None:
    made = _Made()
    search = SpeedSearch([Module("m", Path())], cast("Making", made), Asked(budget=8, growth=10, passes=False))
    search.run()
    assert search.best.text == 2 * _BYTES + 32
    assert search.best.cycles == 9100
    assert search.best.decided["m"].inlining == {"one": True, "two": False}
