"""Tasks whose cases are modules of a corpus."""

from collections.abc import Sequence
from pathlib import Path

from policybridge_client.contract import Connection
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_train.compiling.compiler import Compiler, newest_compiler
from policybridge_train.compiling.decider import Decider, Plain
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.policy import ByConnection
from policybridge_train.compiling.process import Limits
from policybridge_train.compiling.result import CompileResult
from policybridge_train.compiling.tool import CompileTool
from policybridge_train.corpus.description import Corpus
from policybridge_train.tasks.task import Asking, Case


class OfCorpus:
    """The part that these tasks have in common; see `Task` and `policybridge_train.tasks.recipe.OfModules`.

    Args:
        compiler: a clang's name or path; empty for the newest that is found.
        plugins: a folder of plugins; empty for none.
        seconds: wall seconds for one compile; empty for the default.
        memory: MiB for one compile; empty for the default.

    Attributes:
        name: as ``policybridge run --task`` has it.
        wanted: of each compile.
        tool: the compiler.

    Raises:
        NotFoundError: there is no such compiler.
        InvalidError: a limit is no number.

    """

    name: str
    wanted: Wanted

    def __init__(self, compiler: str = "", plugins: str = "", seconds: str = "", memory: str = "") -> None:
        found = Compiler.find(compiler) if compiler else newest_compiler()
        self.tool = CompileTool(found, Limits.read(seconds, memory), plugins=Path(plugins) if plugins else None)
        self._modules: dict[str, Module] = {}

    @property
    def compiler(self) -> Compiler:
        """The compiler, by whose version a farm tells whether it has the same one."""
        return self.tool.compiler

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the modules."""
        if corpus is None:
            raise InvalidError(
                f"the task {self.name} needs a corpus: give --corpus DIR (policybridge corpus makes one)"
            )
        return [self.know(module) for module in Corpus.open(corpus).modules]

    def know(self, module: Module) -> Case:
        """Give the case of a module, which can be run from now on."""
        self._modules[module.name] = module
        return Case(module.name, module.project, module.language)

    def module(self, case: Case) -> Module:
        """Give the module of a case.

        Raises:
            NotFoundError: there is none.

        """
        module = self._modules.get(case.name)
        if module is None:
            raise NotFoundError(f"there is no module {case.name!r} in the corpus that was opened")
        return module

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give the module of a case."""
        return [self._modules[case.name]] if case.name in self._modules else []

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Compile a module by the policy, or by LLVM's own decisions if ``asking`` is ``None``."""
        return self._compiled(case, asking.decider(self.name) if asking else Plain())

    def run_by(self, case: Case, connection: Connection) -> CompileResult:
        """Compile a module with the answers of a connection of this process, as `run` does with a server's."""
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
