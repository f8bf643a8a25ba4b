"""The result of a search for speed, for people and as JSON."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.json_text import json_text
from policybridge_train.speed.confirming import Times
from policybridge_train.tuning.applying import Ending

_MOSTLY: Final = 0.5
"""The share of cycles below which there is little to be tuned."""


class Spent(msgspec.Struct, frozen=True):
    """What was used: compiles of how many modules, and runs under callgrind."""

    compiles: int
    modules: int
    runs: int


class Pair(msgspec.Struct, frozen=True):
    """A number by LLVM's own decisions and by the best found."""

    before: int
    after: int

    @property
    def percent(self) -> float:
        """The change in percent."""
        return 100 * (self.after / self.before - 1) if self.before else 0.0


class Speed(msgspec.Struct, frozen=True):
    """The result.

    Attributes:
        program: its file's name.
        cycles: estimated, of the run.
        text: bytes.
        time: ``None`` if nothing was found.
        hot: the functions that were tuned, and their shares of the cycles, the greatest first.
        own: the share of the cycles that functions of the build's modules cost by themselves.
        decisions: about calls.
        passes: choices of passes.
        spent: compiles and runs.
        failures: moves that made no program that works.
        stored: whether the store has the decisions.

    """

    program: str
    cycles: Pair
    text: Pair
    time: Times | None
    hot: dict[str, float]
    own: float
    decisions: int
    passes: int
    spent: Spent
    failures: Sequence[str]
    stored: bool

    def lines(self, ending: Ending) -> Iterator[str]:
        """Give the lines for people."""
        spent = self.spent
        yield (
            f"{self.program}: {len(self.hot)} functions cost 0.5 % or more; {spent.compiles:,} compiles of "
            f"{spent.modules:,} modules and {spent.runs:,} counted runs of it by {ending.tuned.compiler.name}"
        )
        if self.own < _MOSTLY:
            yield (
                f"{100 * self.own:.0f} % of the cycles are in functions that can be tuned; the others are in shared "
                "libraries (link those of the build statically), or in objects that link steps changed (ld -r, objcopy)"
            )
        yield from (f"not kept: {why}" for why in self.failures)
        cycles, text, time = self.cycles, self.text, self.time
        yield f"estimated cycles {cycles.before:,}, tuned {cycles.after:,} ({cycles.percent:+.2f} %)"
        yield f"text {text.before:,}, tuned {text.after:,} ({text.percent:+.2f} %)"
        if time is None:
            yield "nothing was found that saves cycles, so there is nothing to store"
            return
        runs = f"{time.pairs} pairs of {time.seconds:.3f} s"
        yield f"processor time × {time.factor:.4f} (95 %: {time.low:.4f} to {time.high:.4f}; {runs}): {time.verdict}"
        if not self.stored:
            yield "the store is left as it is: the program is confirmed to be slower"
            return
        chosen = f"{self.decisions:,} decisions about calls and {self.passes:,} choices of passes"
        yield f"{chosen}; apply {ending.tuned.store}:"
        yield from (f"  {line}" for line in ending.applying())

    def write_json(self, store: Path, applying: Sequence[str]) -> None:
        """Write the result to standard output."""
        told = {**msgspec.to_builtins(self), "store": str(store), "apply": list(applying) if self.stored else []}
        if self.time is not None:
            told["time"]["verdict"] = self.time.verdict
        sys.stdout.buffer.write(json_text(told).encode() + b"\n")
