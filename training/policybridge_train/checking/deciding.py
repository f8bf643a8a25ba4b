"""How the compilers of a checked build get their decisions: the scripts that start them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import loads_early


class Deciding(Protocol):
    """A way to decide in a build."""

    def script(self, compiler: str, statistics: Path) -> str:
        """Give the lines of a shell that replace it by the compiler, which writes statistics into a folder."""


@dataclass(frozen=True)
class ByLauncher(Deciding):
    """The launcher, or ``policybridge run``.

    Attributes:
        words: of its command, before ``--``.

    """

    words: Sequence[str]

    def script(self, compiler: str, statistics: Path) -> str:
        """Start the launcher with the compiler."""
        words = shlex.join(self.words)
        return f'exec {words} --stats {shlex.quote(str(statistics))}/$$.json -- {shlex.quote(compiler)} "$@"\n'


@dataclass(frozen=True)
class ByPlugin(Deciding):
    """The plugin, which asks about all that a policy decides; for LTO the launcher, which finds the linker's.

    Attributes:
        plugin: for all of the build's compilers.
        settings: of the plugin, by the ends of its variables' names.
        linking: starts commands with ``-flto``.

    """

    plugin: Path
    settings: Mapping[str, str]
    linking: ByLauncher

    def script(self, compiler: str, statistics: Path) -> str:
        """Start the compiler with the plugin."""
        settings = {**self.settings, "STATS": f"{statistics}/%p.json"}
        variables = " ".join(f"POLICYBRIDGE_{name}={shlex.quote(value)}" for name, value in settings.items())
        started = CompilerCommand.of([compiler])
        words = shlex.join(started.with_plugin(str(self.plugin), [], early=loads_early(started)))
        linking = self.linking.script(compiler, statistics)
        # Of variables before exec, dash gives the program only those that are exported.
        with_lto = f"for word; do case $word in -flto*|-fthinlto-index*)\n{linking};; esac; done\n"
        return f'{with_lto}export {variables}\nexec {words} "$@"\n'


def plain_script(compiler: str) -> str:
    """Give the lines of a shell that replace it by the compiler as it is."""
    return f'exec {shlex.quote(compiler)} "$@"\n'
