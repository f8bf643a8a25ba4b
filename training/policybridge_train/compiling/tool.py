"""A compiler of a machine, and how each machine of a farm gets it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from policybridge_client.decisions import By, Store, read_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_train.compiling.compiler import Compiler, same_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.plugins import find_plugin, loads_early
from policybridge_train.farms.contract import Machine
from policybridge_train.processes.process import Running


@dataclass(frozen=True)
class CompileTool:
    """A compiler of a machine, with all that compiles there have in common. Usable from any thread.

    Attributes:
        limits: of each compile.
        running: where compilers are counted while they run.
        plugins: a folder in which plugins are looked for first.
        interactive: whether LLVM's interactive mode is used even where there is a plugin.

    """

    compiler: Compiler
    limits: Limits = field(default_factory=Limits)
    running: Running = field(default_factory=Running)
    plugins: Path | None = None
    interactive: bool = False
    _stores: dict[Path, Store] = field(default_factory=dict, repr=False)

    @cached_property
    def _start(self) -> CompilerCommand:
        return CompilerCommand.of([*self.compiler.start, "-cc1"])

    @cached_property
    def plugin(self) -> Path | None:
        """The inliner's plugin; ``None`` if there is none, or none is wanted."""
        return None if self.interactive else find_plugin(self._start, self.plugins)

    @property
    def by(self) -> By:
        """The kind of the decisions' keys."""
        return "sequence" if self.plugin is None else "site"

    @cached_property
    def _early(self) -> bool:
        return loads_early(self._start)

    @property
    def recipe(self) -> "CompileRecipe":
        """How the same tool is made elsewhere: by the plugin of the same folder, or by none."""
        compiler, folder = self.compiler, self.plugin.parent if self.plugin else None
        return CompileRecipe(compiler.name, compiler.version, self.limits, folder, interactive=folder is None)

    def with_plugin(self, words: Sequence[str], options: Sequence[str]) -> list[str]:
        """Add the plugin, with options of the plugin, to a command of this compiler."""
        start = self._start
        command = CompilerCommand(start.kind, start.start, tuple(words[len(start.start) :]))
        return command.with_plugin(str(self.plugin), options, early=self._early)

    def store(self, path: Path) -> Store:
        """Read a store, once.

        Raises:
            InvalidError: the file is none.

        """
        if path not in self._stores:
            self._stores[path] = read_store(path)
        return self._stores[path]


@dataclass(frozen=True)
class CompileRecipe:
    """How the tool is made on a machine of a farm; equal recipes have one tool there.

    Attributes:
        compiler: the name or path of the compiler.
        version: the first line of its ``--version``, everywhere.
        limits: see `CompileTool`, as the rest.

    """

    compiler: str
    version: str
    limits: Limits
    plugins: Path | None = None
    interactive: bool = False

    def make(self, machine: Machine) -> CompileTool:
        """Make it.

        Raises:
            NotFoundError: there is no such compiler.
            PreconditionError: it is of another version here.

        """
        compiler = same_compiler(self.compiler, self.version)
        return CompileTool(compiler, self.limits, machine.running, self.plugins, self.interactive)
