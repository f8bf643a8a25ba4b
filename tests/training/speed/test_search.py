"""A search for speed whose text becomes too large, on compiles and runs written by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, Site
from policybridge_train.processes.process import Running
from policybridge_train.speed.asked import Asked
from policybridge_train.speed.making import Making
from policybridge_train.speed.moves import FIRST
from policybridge_train.speed.running import Ran
from policybridge_train.speed.search import SpeedSearch
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.flips import Decided
from tests.training.tuning.autotuning import compile_result

_CALLERS = {"one": "fast", "two": "large"}
_BYTES = 1000
_SAVED = {"fast": 300, "large": -300, "cold": 0}
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


class _Chosen(_Made):
    """Makes programs in which the first choices make a function faster, one slower, and one that is not run larger."""

    saved: Mapping[str, int] = _SAVED
    breaking = ""
    """The function with which they make no program."""

    def compiled(self, modules: Sequence[tuple[Module, Decided]]) -> list[tuple[CompileResult, Path]]:
        ((_, decided),) = modules
        chosen = sorted(name for name in self.saved if FIRST.split(" & ")[0] in decided.passes.get(name, ()))
        if self.breaking in chosen:
            raise PreconditionError("it crashes")
        sizes = {name: _BYTES + 32 * (name == "cold" and name in chosen) for name in [*self.saved, "hot"]}
        return [(compile_result(sum(sizes.values()), sizes, [], "m"), Path("-".join(chosen)))]

    def linked(self, objects: Mapping[str, Path], letter: str) -> tuple[Path, int]:
        return Path(letter, objects["m"]), 4 * _BYTES + 32 * ("cold" in objects["m"].name)

    def count(self, program: Path) -> tuple[Counted, Ran]:
        tail = {name: 400 - saved * (name in program.name) for name, saved in self.saved.items() if name != "cold"}
        own = {"hot": 100_000, **tail}
        return Counted(sum(own.values()), own, own, {}), Ran("the same", 1.0)


_NUMBERS = tuple(10.0 for _ in NUMBERS)


def test_the_moves_that_save_most_for_their_bytes_stay_where_the_text_is_too_large() -> None:
    made = _Made()
    search = SpeedSearch([Module("m", Path())], cast("Making", made), Asked(budget=8, growth=10, passes=False))
    search.run()
    assert search.best.text == 2 * _BYTES + 32
    assert search.best.cycles == 9100
    assert search.best.decided["m"].inlining == {"one": True, "two": False}


def test_functions_that_are_not_hot_keep_the_first_choices_that_make_them_neither_slower_nor_larger() -> None:
    asked = Asked(budget=4, growth=10, inline=False)
    search = SpeedSearch([Module("m", Path())], cast("Making", _Chosen()), asked)
    search.run()
    assert search.best.cycles == 100_500
    assert {name for name, its in search.best.decided["m"].passes.items() if its} == {"fast"}


def test_no_function_tries_choices_of_passes_if_they_are_not_asked_for() -> None:
    asked = Asked(budget=4, growth=10, inline=False, passes=False)
    search = SpeedSearch([Module("m", Path())], cast("Making", _Chosen()), asked)
    search.run()
    assert search.best is search.before


class _Breaking(_Chosen):
    saved: Mapping[str, int] = {"able": 300, **_SAVED}
    breaking = "large"


def test_functions_keep_the_first_choices_if_those_of_another_one_make_no_program() -> None:
    asked = Asked(budget=4, growth=10, inline=False)
    search = SpeedSearch([Module("m", Path())], cast("Making", _Breaking()), asked)
    search.run()
    assert {name for name, its in search.best.decided["m"].passes.items() if its} == {"able"}
