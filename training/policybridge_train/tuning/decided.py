"""Decisions of both kinds, with which a search compiles a module: about inlining, and about the passes of functions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key
from policybridge_client.decisions.passes import Action
from policybridge_train.compiling.decisions import ByDecisions

MODULE: Final = ""
"""The name under which a module's own choices are kept; its key is that of choices for all functions."""

_SPELT_OUT: Final = re.compile(rb"\\x([89a-f][0-9a-f])")


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """Decisions of one compile; also those that a move turns.

    Attributes:
        inlining: by site: whether to inline. LLVM decides about all others.
        passes: by function: its choices, each an action and a name as a store has them (``skip machine-cse``).

    """

    inlining: Mapping[str, bool] = {}
    passes: Mapping[str, Sequence[str]] = {}

    @property
    def count(self) -> int:
        """How many decisions there are."""
        return len(self.inlining) + sum(map(len, self.passes.values()))

    def turned(self, move: "Decided") -> "Decided":
        """Give these after a move: its sites as it has them, and its choices made, or taken back if they are here."""
        passes = dict(self.passes)
        for function, choices in move.passes.items():
            there = passes.pop(function, ())
            left = [*(each for each in there if each not in choices), *(each for each in choices if each not in there)]
            if left:
                passes[function] = left
        return Decided({**self.inlining, **move.inlining}, passes)

    @property
    def back(self) -> "Decided":
        """The move that takes this one back."""
        return Decided({site: not inline for site, inline in self.inlining.items()}, self.passes)

    def choices(self) -> Iterator[PassChoice]:
        """Give the choices of passes as a store has them."""
        for function, its in self.passes.items():
            for each in its:
                word, _, name = each.partition(" ")
                yield PassChoice(function_key(_name_of(function)), cast("Action", word), name, _name_of(function))

    @property
    def decider(self) -> ByDecisions:
        """What compiles with these."""
        return ByDecisions(self.inlining, tuple(self.choices()))


def passes_of(choices: Sequence[PassChoice], functions: Iterable[str]) -> dict[str, list[str]]:
    """Give the choices of a store by the names of a module's functions; those of other functions are left out."""
    names = {function_key(_name_of(function)): function for function in functions} | {ALL_FUNCTIONS: MODULE}
    found: dict[str, list[str]] = {}
    for choice in choices:
        if choice.key in names:
            found.setdefault(names[choice.key], []).append(f"{choice.action} {choice.name}")
    return found


def _name_of(function: str) -> str:
    """Give the name of a function whose bytes that are no UTF-8 are spelt out (`compiling.result.as_utf8`)."""
    spelt = function.encode("utf-8")
    return _SPELT_OUT.sub(lambda found: bytes.fromhex(found[1].decode()), spelt).decode("utf-8", "surrogateescape")
