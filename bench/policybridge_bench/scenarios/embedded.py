"""Compile with a policy in a plugin, with plain clang, and with a plugin that asks a server."""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_bench.options import fill
from policybridge_bench.scenarios.compiles import PLAIN, compiled, report, spread, timed
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_core.errors import InvalidError
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus

_EMBEDDED, _SERVER = "embedded", "server"


def run(arguments: argparse.Namespace) -> int:
    """Compile each file every way in every round, one after the other; a latency is a compile's processor time.

    With ``--server``, also compare the objects of the server's policy with the plugin's.
    """
    if arguments.corpus is None or arguments.embedded is None:
        raise InvalidError(
            "embedded needs --corpus, a folder of modules, and --embedded, a plugin of policybridge embed"
        )
    fill(arguments, rounds=5, baseline=PLAIN)
    commands = _Commands.of(arguments)
    modules = spread(Corpus.open(arguments.corpus).modules)
    objects = _Objects()
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        seconds = compiled(
            commands.ways,
            modules,
            arguments.rounds,
            lambda way, module: commands.compile(way, module, folder / way),
            lambda: objects.compare(folder, commands.ways),
        )
    return report(arguments, seconds, objects.figures())


@dataclass
class _Objects:
    compared: int = 0
    different: int | None = None
    changed: int = 0

    def compare(self, folder: Path, ways: Sequence[str]) -> None:
        """Count one module from its object by each way."""
        self.compared += 1
        made = {way: (folder / way).read_bytes() for way in ways}
        self.changed += made[_EMBEDDED] != made[PLAIN]
        if _SERVER in made:
            self.different = (self.different or 0) + (made[_EMBEDDED] != made[_SERVER])

    def figures(self) -> Iterator[tuple[str, float]]:
        """Give the counts."""
        yield "objects compared", self.compared
        yield "objects that the policy changes", self.changed
        if self.different is not None:
            yield "objects unlike those of the server's policy", self.different


@dataclass(frozen=True)
class _Commands:
    compiler: Compiler
    embedded: Path
    plugin: Path | None
    server: str | None
    policy: str
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "_Commands":
        compiler = Compiler.find(arguments.compiler)
        plugin = None
        if arguments.server:
            plugin = find_plugin(CompilerCommand.of([*compiler.start, "-cc1"]), arguments.plugins)
            if plugin is None:
                raise InvalidError(f"no plugin for {compiler.name}: name its folder by --plugins")
        return cls(
            compiler, arguments.embedded.absolute(), plugin, next(iter(arguments.server), None), arguments.policy
        )

    @property
    def ways(self) -> list[str]:
        """The ways to compile."""
        return [PLAIN, _EMBEDDED] if self.plugin is None else [PLAIN, _EMBEDDED, _SERVER]

    def compile(self, way: str, module: Module, output: Path) -> float:
        """Compile once; return the seconds of processor time."""
        command = compile_command(self.compiler, module, output)
        compiling = CompilerCommand.of(command)
        if way == _EMBEDDED:
            command = compiling.with_plugin(str(self.embedded), [], early=loads_early(compiling))
        elif way == _SERVER:
            flags = [f"-policybridge-server={self.server}", f"-policybridge-policy={self.policy}"]
            command = compiling.with_plugin(str(self.plugin), flags, early=loads_early(compiling))
        return timed(command, module, self.environment)
