"""Which projects are trained on, validated on, and held out: a rule that looks at their names alone."""

import hashlib
from enum import Enum
from typing import Final

_HELD_OUT: Final = 3


_VALIDATION: Final = 5


class Part(Enum):
    """A part of the projects.

    A policy learns from ``TRAINING``; ``VALIDATION`` chooses versions and settings; nobody looks at ``HELD_OUT`` before
    all is chosen.
    """

    TRAINING = "training"
    VALIDATION = "validation"
    HELD_OUT = "held-out"


def part_of(project: str) -> Part:
    """Give a project's part: by its name's SHA-256 a third is held out, a fifth of the others is for validation."""
    number = number_of(project)
    if number % _HELD_OUT == 0:
        return Part.HELD_OUT
    return Part.VALIDATION if number // _HELD_OUT % _VALIDATION == 0 else Part.TRAINING


def number_of(name: str) -> int:
    """Give the SHA-256 of a name as a number."""
    return int(hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest(), 16)
