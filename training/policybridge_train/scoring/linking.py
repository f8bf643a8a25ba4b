"""Programs linked from a candidate's objects, beside those of the baseline's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.linker import Linked, Linker, Unlinked
from policybridge_train.compiling.module import Program
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import for_each
from policybridge_train.scoring.results import ModuleRow, ProgramRow, Size

Objects = Mapping[str, Path]
"""The file of each module's object, by the module's name."""


@dataclass(frozen=True)
class Linking:
    """How programs are linked."""

    linker: Linker
    limits: Limits
    running: Running
    jobs: int

    def compare(
        self, corpus: Corpus, modules: Sequence[ModuleRow], before: Objects, after: Objects, done: Callable[[], None]
    ) -> list[ProgramRow]:
        """Link every program twice, from the same modules: those that have an object on both sides."""
        languages = {row.module: row.language for row in modules}
        both = {row.module for row in modules if row.ok}
        same = {row.module for row in modules if row.identical}

        def compare_one(program: Program) -> ProgramRow:
            old = self._link(program, {name: before[name] for name in program.modules if name in both})
            # The linker gives the same program for the same objects.
            unchanged = same.issuperset(both.intersection(program.modules))
            new = (
                old
                if unchanged
                else self._link(program, {name: after[name] for name in program.modules if name in both})
            )
            done()
            return _row(program, _language(program, languages), old, new)

        return list(for_each(compare_one, corpus.programs, self.jobs, self.running))

    def _link(self, program: Program, objects: Objects) -> Linked | Unlinked:
        return self.linker.link(program, objects, self.limits, self.running)


def _language(program: Program, languages: Mapping[str, str]) -> str:
    """Give C++ where any of it is C++, because templates are what differs; else the most frequent language."""
    found = [languages[name] for name in program.modules if name in languages]
    return "c++" if "c++" in found else max(found, key=found.count, default="")


def _row(program: Program, language: str, old: Linked | Unlinked, new: Linked | Unlinked) -> ProgramRow:
    reasons = dict.fromkeys(each.reason if isinstance(each, Unlinked) else each.note for each in (old, new))
    missing = old.missing if isinstance(old, Linked) else program.modules
    return ProgramRow(
        program.name,
        program.project,
        language,
        program.kind,
        len(set(program.modules)) - len(missing),
        missing,
        _size(old),
        _size(new),
        "; ".join(filter(None, reasons)),
    )


def _size(linked: Linked | Unlinked) -> Size | None:
    return Size(linked.text, linked.exec, linked.sections) if isinstance(linked, Linked) else None
