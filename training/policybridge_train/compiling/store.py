"""Decisions of a store: applied by the plugin, or in LLVM's interactive mode if the store has them by sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from policybridge_client.decisions import Heading, Section
from policybridge_client.decisions.text import By
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compilation import Command, InteractiveCompile, compile_command, plugin_command
from policybridge_train.compiling.compiler import CompileTool
from policybridge_train.compiling.decider import Compilation, Decider
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.farms.contract import Machine, Shared


@dataclass(frozen=True)
class ByStore(Decider):
    """A store.

    Attributes:
        path: the file.
        shared: the file for other machines.

    """

    path: Path
    shared: Shared[Path]

    def at(self, machine: Machine, *, again: bool = False) -> Self:  # noqa: ARG002 - of `Decider`
        """Give the store of the machine."""
        return replace(self, path=self.shared.at(machine))

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation with the store's decisions; plain where it has none for the module."""
        if isinstance(module, LinkedModule):
            return self._linked(tool, module, output, extra)
        words = compile_command(tool.compiler, module, output, extra)
        command = CompilerCommand.of(words)
        sequence = self._section(tool, command, module, "sequence")
        site = self._section(tool, command, module, "site")
        if tool.plugin is not None and (site or not sequence):
            options = [*self._options, ("module", module.name)]
            words, _ = plugin_command(tool, module, output, extra, options)
            return Command(words, tool.limits, tool.running, "plugin")
        if sequence:
            return InteractiveCompile(tool, words, sequence.answers, output)
        if site:
            raise PreconditionError(
                f"{self.path} names decisions by their sites, for which {tool.compiler.name} needs the plugin "
                f"policybridge-inliner-{tool.compiler.major}.so; give its folder by --plugins (docs/plugin.md)"
            )
        return Command(words, tool.limits, tool.running)

    @property
    def _options(self) -> list[tuple[str, str]]:
        return [("decisions", str(self.path)), ("fallback", "error")]

    def _linked(self, tool: CompileTool, module: LinkedModule, output: Path, extra: Sequence[str]) -> Compilation:
        # The modules of a ThinLTO link go by their sources and digests, a merged program by its name.
        names = [("module", module.name)] if module.is_whole else []
        words, variables = plugin_command(tool, module, output, extra, [*self._options, *names])
        return Command(words, tool.limits, tool.running, "plugin", variables=variables)

    def _section(self, tool: CompileTool, command: CompilerCommand, module: Module, by: By) -> Section | None:
        heading = Heading(tool.compiler.major, command.level, by, None, module.name)
        return tool.store(self.path).section_for(heading)
