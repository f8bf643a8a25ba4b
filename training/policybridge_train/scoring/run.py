"""Compiles every module by every contender, and links every program from the objects."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from policybridge_core.errors import NotFoundError, PolicyBridgeError
from policybridge_train.compiling.compiler import CompileRecipe, CompileTool
from policybridge_train.compiling.job import FarmCompiler, Wanted
from policybridge_train.compiling.linker import Linker
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.description import Corpus
from policybridge_train.farms.contract import Farm
from policybridge_train.processes.process import Status
from policybridge_train.processes.threads import for_each
from policybridge_train.scoring.cache import Cache
from policybridge_train.scoring.contenders import Contender
from policybridge_train.scoring.linking import Linking
from policybridge_train.scoring.repeating import Repeating
from policybridge_train.scoring.results import Comparison, ModuleRow, Scores

Advance = Callable[[str], None]
"""Told of each module that was compiled by all contenders, and of each program that was linked."""


class Made(NamedTuple):
    """A contender's compile of a module, and the file of the object."""

    result: CompileResult
    file: Path


_SKIPPED: Final = Made(CompileResult(status=Status.SKIPPED), Path())
"""Stands for a candidate where the baseline made nothing to compare with."""

Objects = Mapping[str, Made]
"""By the modules' names."""

_Side = tuple[Contender, Objects]


@dataclass(frozen=True)
class Plan:
    """The modules, contenders and settings of a score.

    Attributes:
        corpus: the modules, and the programs that are linked; see `programs_of`.
        baselines: each candidate is compared with each of them.
        tools: the compilers.
        objectives: the costs by which modules are compared.
        farm: where compilers run.
        cache: where the results of plain compilations are kept; ``None`` for nowhere.

    """

    corpus: Corpus
    tools: Sequence[CompileTool]
    baselines: Sequence[Contender]
    candidates: Sequence[Contender]
    repeating: Repeating
    task: str
    farm: Farm
    cache: Cache | None = None
    objectives: tuple[str, ...] = ("text", "exec")


def score(plan: Plan, advance: Advance) -> Scores:
    """Compile and link all, and compare; what goes wrong with a module or a program is told by its row.

    Raises:
        NotFoundError: a compiler cannot be run.
        OSError: there is no room for the objects.

    """
    linker = _linker()
    comparisons = [one for tool in plan.tools for one in _Run(plan, tool, linker, advance).comparisons()]
    version = linker.version if linker else ""
    return Scores(str(plan.corpus.folder), plan.task, version, comparisons, plan.corpus.failures)


def _linker() -> Linker | None:
    try:
        return Linker.find()
    except NotFoundError:
        return None


@dataclass(frozen=True)
class _Run:
    """One compiler's part of a plan."""

    plan: Plan
    tool: CompileTool
    linker: Linker | None
    advance: Advance

    def comparisons(self) -> list[Comparison]:
        # The version is read first, so that a compiler that does not run ends all before it has begun.
        version = self.tool.compiler.version
        with TemporaryDirectory(prefix="policybridge-score-") as folder:
            made = self._made(Path(folder))
            baselines = list(zip(self.plan.baselines, made, strict=False))
            candidates = list(zip(self.plan.candidates, made[len(baselines) :], strict=True))
            return [self._comparison(version, pair) for pair in product(candidates, baselines)]

    def _comparison(self, version: str, pair: tuple[_Side, _Side]) -> Comparison:
        (candidate, made), (baseline, before) = pair
        modules = [self._module_row(pair, module) for module in self.plan.corpus.modules]
        names = (self.tool.compiler.name, version, baseline.name, candidate.name, self._way(candidate))
        if self.linker is None or not self.plan.corpus.programs:
            return Comparison(*names, modules, [])
        # Linkers run here, where the objects are.
        jobs = min(self.plan.farm.slots, os.cpu_count() or 1)
        linking = Linking(self.linker, self.tool.limits, self.plan.farm.running, jobs)
        files = [{name: one.file for name, one in side.items()} for side in (before, made)]
        programs = linking.compare(self.plan.corpus, modules, files[0], files[1], lambda: self.advance("linked"))
        repeating = self.plan.repeating
        repeated = [repeating.program(row, self.tool, baseline, candidate) for row in programs]
        return Comparison(*names, modules, repeated)

    def _made(self, folder: Path) -> list[Objects]:
        """Compile every module by every contender; give each contender's objects by the modules' names."""
        farm, modules = self.plan.farm, self.plan.corpus.modules
        measuring = _Measuring(self.plan, self.tool)
        contenders = (*self.plan.baselines, *self.plan.candidates)
        count = len(self.plan.baselines)

        def compile_by_all(job: tuple[int, Module]) -> list[Made]:
            number, module = job
            # One after another, so that their processor times are those of the same load.
            made: list[Made] = []
            for index, contender in enumerate(contenders):
                output = folder / f"{number}-{index}.o"
                wanted = index < count or any(each.result.ok for each in made[:count])
                made.append(measuring.compile(contender, module, output) if wanted else _SKIPPED)
            self.advance("compiled")
            return made

        rows = list(for_each(compile_by_all, list(enumerate(modules)), farm.slots, farm.running))
        return [
            {module.name: row[index] for module, row in zip(modules, rows, strict=True)}
            for index in range(len(contenders))
        ]

    def _module_row(self, pair: tuple[_Side, _Side], module: Module) -> ModuleRow:
        (candidate, made), (baseline, before) = pair
        results = before[module.name].result, made[module.name].result
        kind = "program" if isinstance(module, LinkedModule) else "module"
        row = ModuleRow(module.name, module.project, module.language, *results, kind=kind)
        return self.plan.repeating.module(row, self.tool, baseline, candidate, module)

    def _way(self, candidate: Contender) -> str:
        """Give the way of the candidate's decisions into the compiler."""
        if not self.plan.corpus.modules:
            return ""
        try:
            return candidate.decider.compilation(self.tool, self.plan.corpus.modules[0], Path("module.o")).way
        except PolicyBridgeError:
            return ""


@dataclass(frozen=True)
class _Measuring:
    """Has modules compiled and measured by the farm, and looks into the cache before."""

    plan: Plan
    tool: CompileTool

    def compile(self, contender: Contender, module: Module, output: Path) -> Made:
        cache, flags, tool = self.plan.cache, contender.flags, self.tool
        if cache is None or flags is None:
            return self._made(contender, module, output)
        try:
            key = cache.key(tool.compiler.identity, list(flags), module.digest, self.plan.objectives)
        except OSError as error:
            return Made(CompileResult.failed(f"the module cannot be read: {error}"), output)
        kept = cache.get(key)
        if kept is not None:
            return Made(*kept)
        made = self._made(contender, module, output)
        cache.put(key, made.result, output)
        return made

    def _made(self, contender: Contender, module: Module, output: Path) -> Made:
        wanted = Wanted(self.plan.objectives, keep=True)
        made = FarmCompiler(self.plan.farm, self._recipe).compile(module, contender.decider, wanted)
        if made.ok:
            output.write_bytes(made.content)
        return Made(msgspec.structs.replace(made, content=b""), output)

    @property
    def _recipe(self) -> CompileRecipe:
        compiler, tool = self.tool.compiler, self.tool
        return CompileRecipe(compiler.name, compiler.version, tool.limits, tool.plugins, tool.interactive)
