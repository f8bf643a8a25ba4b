"""Tasks whose cases are modules of a corpus."""

import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from policybridge_client.contract import Connection
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_core.lacking import lacking
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool, newest_compiler
from policybridge_train.compiling.decider import Decider
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.lto import MODES, Mode, find_lld
from policybridge_train.compiling.module import Module, Program
from policybridge_train.compiling.policy import ByConnection
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.link_time import Preparing, link_time_of
from policybridge_train.tasks.task import Asking, Case, Task


class OfCorpus:
    """The base class of these tasks; see `Task` and `policybridge_train.tasks.recipe.OfModules`.

    Args:
        compiler: the name or path of a clang; empty: the newest clang on this machine.
        plugins: a folder that is searched for plugins first; empty: only the default folders are searched.
        seconds: the limit of one compile in wall seconds; empty: the default.
        memory: the limit of one compile in MiB; empty: the default.

    Attributes:
        name: the task's name, as in ``policybridge run --task``.
        wanted: the measurements and files to take of each compile.
        tool: the compiler.
        programs: those of the corpus that was opened last; a project without one is a program.

    Raises:
        NotFoundError: there is no such compiler.
        InvalidError: a limit is not a number.

    """

    name: str
    wanted: Wanted

    def __init__(self, compiler: str = "", plugins: str = "", seconds: str = "", memory: str = "") -> None:
        found = Compiler.find(compiler) if compiler else newest_compiler()
        self.tool = CompileTool(found, Limits.read(seconds, memory), plugins=Path(plugins) if plugins else None)
        self.programs: Sequence[Program] = ()
        self._modules: dict[str, Module] = {}

    @property
    def compiler(self) -> Compiler:
        """The compiler; each machine of a farm compares its own compiler's version with this one's."""
        return self.tool.compiler

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give one case for each module of the corpus."""
        if corpus is None:
            raise InvalidError(
                f"the task {self.name} needs a corpus: give --corpus DIR (policybridge corpus makes one)"
            )
        opened = Corpus.open(corpus)
        self.programs = programs_of(opened)
        return [self.know(module) for module in self._units(opened)]

    def _units(self, corpus: Corpus) -> Sequence[Module]:
        """Give the modules that are cases."""
        return corpus.modules

    def know(self, module: Module) -> Case:
        """Register a module, so that its case can be run; give the case."""
        self._modules[module.name] = module
        return Case(module.name, module.project, module.language)

    def module(self, case: Case) -> Module:
        """Give the module of a case.

        Raises:
            NotFoundError: no module of that name is registered.

        """
        module = self._modules.get(case.name)
        if module is None:
            raise NotFoundError(f"there is no module {case.name!r} in the corpus that was opened")
        return module

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give a list of the case's one module; empty if the module is not registered."""
        return [self._modules[case.name]] if case.name in self._modules else []

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Compile a module by the policy, or by LLVM's own decisions if ``asking`` is ``None``."""
        return self._compiled(case, asking.decider(self.name) if asking else Plain())

    def run_by(self, case: Case, connection: Connection) -> CompileResult:
        """Compile a module as `run` does, with the advice of a connection in this process instead of a server's."""
        return self._compiled(case, ByConnection(connection, self.name))

    def _compiled(self, case: Case, decider: Decider) -> CompileResult:
        module = self.module(case)
        try:
            return compile_module(self.tool, module, decider, self.wanted)
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))

    def end(self) -> None:
        """End all compilers."""
        self.tool.running.end()


class OfPlugin(OfCorpus):
    """The base class of tasks that only the plugin ``policybridge-inliner`` asks; see `OfCorpus`.

    Args:
        lto: ``full`` or ``thin``: LLD compiles the cases at link time; empty: clang compiles modules. With ``full`` a
            case is a program, with ``thin`` a module of one.

    Raises:
        NotFoundError: there is no such compiler, or no plugin that it loads.
        InvalidError: a limit is not a number, or ``lto`` is no mode.

    """

    def __init__(
        self, compiler: str = "", plugins: str = "", seconds: str = "", memory: str = "", lto: str = ""
    ) -> None:
        super().__init__(compiler, plugins, seconds, memory)
        if self.tool.plugin is None and self.compiler.name == "zig":
            raise NotFoundError("zig loads no plugins, which this task needs: give --compiler clang-22")
        if self.tool.plugin is None:
            missing = f"there is no policybridge-inliner-{self.compiler.major}.so that {self.compiler.name} loads"
            raise NotFoundError(lacking(f"{missing}; give its folder by --plugins, or in POLICYBRIDGE_PLUGINS"))
        self.lto = next((mode for mode in MODES if mode == lto), None)
        if self.lto is not None:
            find_lld(self.compiler)
        elif lto:
            raise InvalidError(f"lto={lto} is no mode of LTO: give {' or '.join(MODES)}")

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give the case's module; ``None`` at link time, where each machine prepares the programs of the corpus."""
        return super().modules_of(case) if self.lto is None else None

    def _units(self, corpus: Corpus) -> Sequence[Module]:
        return super()._units(corpus) if self.lto is None else list(self._linked(corpus, self.lto))

    def _linked(self, corpus: Corpus, mode: Mode) -> Iterator[Module]:
        """Prepare the programs for LTO, and give each unit once: programs may share modules."""
        folder, tool = mkdtemp(prefix="policybridge-lto-"), self.tool
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        preparing = Preparing(Path(folder), tool.compiler, mode, tool.limits, tool.running)
        found = link_time_of(corpus, preparing, os.cpu_count() or 1)
        for name, why in found.failures.items():
            sys.stderr.write(f"policybridge train: {name!r} is left out: {why.partition(chr(10))[0]!r}\n")
        if not found.programs:
            raise InvalidError(f"no program of {corpus.folder} can be linked, so there is nothing to train on")
        units = [unit for program in found.programs for unit in program.parts]
        yield from {unit.name: unit for unit in reversed(units)}.values()


def distinct(task: Task, cases: Sequence[Case]) -> Sequence[Case]:
    """Give one case for each distinct bitcode: a library's static and shared objects often have the same bitcode."""
    if not isinstance(task, OfCorpus):
        return cases
    return list({task.module(case).digest: case for case in reversed(cases)}.values())[::-1]
