"""Compile by clang with the plugin and a store of decisions, and by clang alone."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_bench.options import fill
from policybridge_bench.scenarios.compiles import PLAIN, compiled, report, spread, timed
from policybridge_client.decisions import read_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_core.errors import InvalidError
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus

_STORE: Final = "store"


def run(arguments: argparse.Namespace) -> int:
    """Compile each file both ways in every round, one after the other; a latency is a compile's processor time."""
    if arguments.corpus is None or arguments.store is None:
        raise InvalidError("store needs --corpus, a folder of modules, and --store, the decisions for them")
    fill(arguments, rounds=5, baseline=PLAIN)
    commands = _Commands.of(arguments)
    modules = _chosen(arguments.corpus, arguments.store)
    with TemporaryDirectory(prefix="pb-") as folder:
        made = Path(folder) / "made"
        seconds = compiled(
            [PLAIN, _STORE], modules, arguments.rounds, lambda way, module: commands.compile(way, module, made)
        )
    return report(arguments, seconds)


@dataclass(frozen=True)
class _Commands:
    compiler: Compiler
    plugin: Path
    store: Path

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "_Commands":
        compiler = Compiler.find(arguments.compiler)
        plugin = find_plugin(CompilerCommand.of([*compiler.start, "-cc1"]), arguments.plugins)
        if plugin is None:
            raise InvalidError(f"no plugin for {compiler.name}: name its folder by --plugins or POLICYBRIDGE_PLUGINS")
        return cls(compiler, plugin, arguments.store.absolute())

    def compile(self, way: str, module: Module, output: Path) -> float:
        """Compile once; return the seconds of processor time."""
        command = compile_command(self.compiler, module, output)
        if way == _STORE:
            flags = [f"-policybridge-decisions={self.store}", f"-policybridge-module={module.name}"]
            compiling = CompilerCommand.of(command)
            command = compiling.with_plugin(str(self.plugin), flags, early=loads_early(compiling))
        return timed(command, module, os.environ)


def _chosen(corpus: Path, store: Path) -> Sequence[Module]:
    """Choose modules with decisions in the store, evenly over the corpus."""
    tuned = {section.heading.path for section in read_store(store).sections}
    modules = [module for module in Corpus.open(corpus).modules if module.name in tuned]
    if not modules:
        raise InvalidError(f"{store} has no decisions for the modules of {corpus}")
    return spread(modules)
