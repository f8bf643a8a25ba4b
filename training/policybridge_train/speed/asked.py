"""The user's options of a search for a faster program."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """Options of `policybridge_train.speed.search.SpeedSearch`.

    Attributes:
        budget: compiles of each module.
        growth: the most growth of the text, in percent.
        inline: whether decisions about calls are tried.
        passes: whether choices of passes are.
        spared: patterns of functions that stay as they are.
        until: when to end, by `time.monotonic`.

    """

    budget: int
    growth: float
    inline: bool = True
    passes: bool = True
    spared: Collection[str] = ()
    until: float | None = None
