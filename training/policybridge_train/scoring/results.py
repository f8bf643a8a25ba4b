"""The results of a score: a row for each module and each program, failures included."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from policybridge_train.compiling.result import CompileResult

Measure = Literal["text", "exec", "linked text", "linked exec", "spill cost", "compile seconds"]


_TOTALS: Final = {"spill cost": "spills"}
_FIGURES: Final = ("status", "seconds", "message", "text", "exec", "sections", "spills", "digest", "cached")
"""Of a compile, in a file."""


class ModuleRow(msgspec.Struct, frozen=True):
    """A module under the baseline and under a candidate.

    Attributes:
        repeat: the words for a shell that compile it in both ways again; empty where it became no larger.
        kind: ``module``, or ``program`` if LTO optimised a whole program.

    """

    module: str
    project: str
    language: str
    before: CompileResult
    after: CompileResult
    repeat: str = ""
    kind: str = "module"

    @property
    def ok(self) -> bool:
        """Whether both compilations made an object."""
        return self.before.ok and self.after.ok

    @property
    def identical(self) -> bool:
        """Whether both made the same object, byte for byte."""
        return self.ok and self.before.digest == self.after.digest

    @property
    def reason(self) -> str:
        """Why there is nothing to compare; empty where there is."""
        return "; ".join(
            f"{who}: {each.status.value}, {each.message}"
            for who, each in (("baseline", self.before), ("candidate", self.after))
            if each.message and not each.ok
        )


class Size(msgspec.Struct, frozen=True):
    """A linked program: its bytes, in all and by section."""

    text: int
    exec: int
    sections: Mapping[str, int]


class ProgramRow(msgspec.Struct, frozen=True):
    """A program linked from a candidate's objects, and from the baseline's of the same modules.

    Attributes:
        modules: how many modules it was linked from.
        missing: its modules that lack an object, which are left out on both sides.
        before: its size under the baseline; ``None`` where it could not be linked.
        after: its size under the candidate.
        reason: why it could not be linked, or the linker's complaints; mostly empty.
        repeat: the shell command that scores it again; empty if it became no larger.

    """

    program: str
    project: str
    language: str
    kind: str
    modules: int
    missing: Sequence[str] = ()
    before: Size | None = None
    after: Size | None = None
    reason: str = ""
    repeat: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was linked on both sides."""
        return self.before is not None and self.after is not None


Row = ModuleRow | ProgramRow


class Comparison(msgspec.Struct, frozen=True):
    """A candidate against the baseline, with one compiler.

    Attributes:
        way: how the candidate decides: by the plugin, in LLVM's interactive mode, or by flags.

    """

    compiler: str
    version: str
    baseline: str
    candidate: str
    way: str
    modules: Sequence[ModuleRow]
    programs: Sequence[ProgramRow]

    @property
    def scored(self) -> bool:
        """Whether there is anything to compare."""
        return any(row.ok for row in self.modules)

    def values(self, measure: Measure, **only: str) -> Iterator[tuple[Row, float, float]]:
        """Give each row with the baseline's and the candidate's value.

        Args:
            measure: to compare.
            only: values that rows must have: ``project="lua"``.

        """
        rows: Sequence[Row] = self.programs if measure.startswith("linked") else self.modules
        for row in rows:
            values = _pair(row, measure)
            if values and all(getattr(row, name) == wanted for name, wanted in only.items()):
                yield row, *values


def _pair(row: Row, measure: Measure) -> tuple[float, float] | None:
    if not row.ok:
        return None
    before, after = _value(row.before, measure), _value(row.after, measure)
    return None if before is None or after is None else (float(before), float(after))


def _value(made: CompileResult | Size | None, measure: Measure) -> float | None:
    if isinstance(made, CompileResult):
        return made.seconds if measure == "compile seconds" else made.totals.get(_TOTALS.get(measure, measure))
    return getattr(made, measure.removeprefix("linked "), None)


class Scores(msgspec.Struct, frozen=True):
    """All comparisons of a run.

    Attributes:
        corpus: the folder.
        linker: what linked the programs; empty where there is no linker.
        excluded: the corpus' failures: by name, why a module is not in the corpus.

    """

    corpus: str
    task: str
    linker: str
    comparisons: Sequence[Comparison]
    excluded: Mapping[str, str] = {}


def as_builtins(scores: Scores) -> dict[str, Any]:
    """Give the rows as they are written to a file."""
    given: dict[str, Any] = msgspec.to_builtins(scores)
    for comparison in given["comparisons"]:
        for row in comparison["modules"]:
            row |= {side: _figures(row[side]) for side in ("before", "after")}
    return given


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    known = {"text": 0, "exec": 0, "spills": None} | result["totals"] | result
    return {name: known[name] for name in _FIGURES}
