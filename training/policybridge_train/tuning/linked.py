"""Programs linked with the searches' decisions: none may be larger than with LLVM's own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.linker import Linked, Linker, Unlinked
from policybridge_train.compiling.module import Module, Program
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import for_each
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.module import ModuleTuning, compile_with
from policybridge_train.tuning.search import Search
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.telling import LinkedSizes


@dataclass(frozen=True)
class Objects:
    """The objects of searches, in files named by their digests: an existing one is not compiled again."""

    folder: Path
    compiler: FarmCompiler
    running: Running

    @classmethod
    def of(cls, folder: Path, compiler: FarmCompiler, running: Running) -> "Objects":
        """Make the folder."""
        folder.mkdir(exist_ok=True)
        return cls(folder, compiler, running)

    def pair(self, module: Module, search: Search) -> tuple[Path, Path] | None:
        """Give a module's objects by LLVM's own decisions and by the best found; ``None`` if one does not compile."""
        try:
            before = self._made(module, search.default_object, Decided())
            return before, self._made(module, search.best_object, search.best)
        except PolicyBridgeError:
            if self.running.over:
                raise
            return None

    def _made(self, module: Module, digest: str, decided: Decided) -> Path:
        path = self.folder / f"{digest}.o"
        if not path.exists():
            # Two modules may have one object, and be here at the same time.
            partial = self.folder / f"{module.digest}.partial"
            partial.write_bytes(compile_with(self.compiler, module, decided, keep=True).content)
            partial.replace(path)
        return path

    def forget(self, pairs: Mapping[str, tuple[Path, Path]]) -> None:
        """Remove the files of all others."""
        used = {path for pair in pairs.values() for path in pair}
        for path in self.folder.iterdir():
            if path not in used:
                path.unlink()


@dataclass
class Programs:
    """Programs, and the objects of which they are now.

    Args:
        programs: to link.
        linker: of all programs.
        running: where each linker is counted while it runs.
        pairs: by module, its objects by LLVM's own decisions and by the best found.

    """

    programs: Sequence[Program]
    linker: Linker
    running: Running
    pairs: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """The modules that are as LLVM's own decisions make them, because a program was larger."""
    unlinked: dict[tuple[str, str], Unlinked] = field(default_factory=dict)
    """Why programs cannot be linked, by project and name."""

    def sizes(self, jobs: int) -> list[tuple[Program, int, int]]:
        """Give the text of each program that can be linked: by LLVM's own decisions, and now."""

        def sized(program: Program) -> tuple[Program, int, int] | None:
            before, after = self._text(program, set(self.pairs)), self._text(program, self.refused)
            return None if before is None or after is None else (program, before, after)

        # Linkers run here, where the objects are.
        return [
            found for found in for_each(sized, self.programs, min(jobs, os.cpu_count() or 1), self.running) if found
        ]

    def settle(self, jobs: int) -> list[tuple[Program, int, int]]:
        """Take back modules until no program is larger; give the sizes then."""
        while True:
            sizes, refused = self.sizes(jobs), len(self.refused)
            for program, before, after in sizes:
                if after > before:
                    self._take_back(program, before)
            # One that was taken back for a program may be what made another one smaller.
            if len(self.refused) == refused:
                return sizes

    def _take_back(self, program: Program, most: int) -> None:
        """Take back those modules first without which the program is smallest."""
        names = [name for name in dict.fromkeys(program.modules) if self._is_changed(name)]
        without = {name: self._text(program, self.refused | {name}) or 0 for name in names}
        for name in sorted(names, key=lambda name: without[name]):
            if (self._text(program, self.refused) or 0) <= most:
                return
            self.refused.add(name)

    def _is_changed(self, name: str) -> bool:
        before, after = self.pairs.get(name, (None, None))
        return before != after and name not in self.refused

    def _text(self, program: Program, refused: set[str]) -> int | None:
        objects = {name: self.pairs[name][name not in refused] for name in program.modules if name in self.pairs}
        linked = self.linker.link(program, objects, Limits(), self.running)
        if isinstance(linked, Linked):
            return linked.text
        self.unlinked[program.project, program.name] = linked
        return None


def link(
    tunings: Sequence[ModuleTuning], programs: Programs, objects: Objects, keeper: StoreKeeper, jobs: int
) -> LinkedSizes:
    """Take decisions that make a program larger out of the store, and give the programs' sizes."""

    def paired(tuning: ModuleTuning) -> tuple[Path, Path] | None:
        search = tuning.search()
        return objects.pair(tuning.module, search) if search else None

    made = zip(tunings, for_each(paired, tunings, jobs, objects.running), strict=True)
    programs.pairs = {tuning.module.name: pair for tuning, pair in made if pair}
    sizes = programs.settle(jobs)
    for tuning in tunings:
        search = tuning.refuse(refused=tuning.module.name in programs.refused)
        if search is not None:
            keeper.put(tuning.module, search)
    keeper.write()
    objects.forget(programs.pairs)
    return LinkedSizes(sizes, programs.refused, [*programs.unlinked.values()])
