"""Random choices of passes for the functions of a program."""

import random
from collections.abc import Sequence
from typing import Final

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key
from policybridge_client.decisions.passes import (
    CODEGEN_PASSES,
    IR_PASSES,
    MODULE_PIPELINES,
    PIPELINES,
    POINTS,
    SWITCHES,
)

_FOR_ALL: Final = 0.1
_OUTLINED: Final = 0.3


def random_choices(chance: random.Random, functions: Sequence[str]) -> list[PassChoice]:
    """Draw what is skipped, added and set for each function, and now and then for all."""
    density = chance.choice([0.03, 0.1, 0.3, 0.6])
    # The empty name is all functions.
    names = ("", *functions) if chance.random() < _FOR_ALL else functions
    choices = [choice for name in names for choice in _for_one(chance, name, density)]
    if chance.random() < _OUTLINED:
        choices += [PassChoice(ALL_FUNCTIONS, "add", f"{pipeline}@last") for pipeline in MODULE_PIPELINES]
    return choices


def _for_one(chance: random.Random, name: str, density: float) -> list[PassChoice]:
    key = function_key(name)
    skipped = [each for each in (*IR_PASSES, *CODEGEN_PASSES) if chance.random() < density]
    added = [f"{each}@{chance.choice(POINTS)}" for each in PIPELINES if chance.random() < density / 3]
    choices = [PassChoice(key, "skip", _at_a_run(chance, each), name) for each in skipped]
    choices += [PassChoice(key, "add", each, name) for each in added]
    return choices + [PassChoice(key, "set", each, name) for each in SWITCHES if chance.random() < density]


def _at_a_run(chance: random.Random, skipped: str) -> str:
    return skipped if chance.random() < 0.7 else f"{skipped}.{chance.randrange(3)}"
