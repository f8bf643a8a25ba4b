"""The compiler that was tuned, as a build starts it with its store: behind the launcher, or with the plugin."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_client.decisions.finding import NAME, find_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.launcher import find_launcher
from policybridge_client.llvm.plugins import loads_early
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.lto import Mode
from policybridge_train.tuning.compilers import BuildCompilers

LANGUAGES: Final = {"C": "CC", "CXX": "CXX"}
"""CMake's names of languages, and the variables of their compilers."""
_LAUNCHER: Final = "policybridge-run"


@dataclass(frozen=True)
class TunedCompiler:
    """The compiler with its store. Each variable, ``CC`` or ``CXX``, has its words.

    Attributes:
        store: the file.
        compiler: the one that was tuned.
        compilers: the build's compilers.
        plugins: the folder of plugins, if it was given.
        lto: the kind of link-time optimisation that was tuned.
        plugin: with which it was tuned. Without a launcher the compiler loads it.

    """

    store: Path
    compiler: Compiler
    compilers: BuildCompilers
    plugins: Path | None = None
    lto: Mode | None = None
    plugin: Path | None = None

    @property
    def variables(self) -> Sequence[str]:
        """The variables of the languages that the build compiles."""
        used = {"CC": self.compilers.has_c, "CXX": self.compilers.has_cxx}
        return [name for name in LANGUAGES.values() if used[name]]

    def with_flags(self, flags: Mapping[str, str]) -> list[str]:
        """Give the assignments of the compilers, each with its flags, which the shell does not split."""
        return [f"{name}={self.starting(name)} {its}".rstrip() for name, its in flags.items()]

    def starting(self, variable: str) -> str:
        """Give the words that start the compiler, for a shell."""
        return shlex.join([*self.launching, *self.words(variable)])

    def words(self, variable: str) -> Sequence[str]:
        """Give the compiler's words, with the plugin where no launcher loads it."""
        words = [*self.driver(variable).split(" "), *self._at_link]
        if not self._is_loaded:
            return words
        command = CompilerCommand.of(words)
        flags = [f"-policybridge-decisions={store}" for store in self._given]
        return command.with_plugin(str(self.plugin), flags, early=loads_early(command))

    @property
    def _is_loaded(self) -> bool:
        """Whether the compiler is told to load the plugin."""
        return bool(self.plugin) and not self.lto and not find_launcher(None)

    @property
    def _given(self) -> Sequence[Path]:
        """The store, unless every compilation finds it by itself."""
        store = self.store.absolute()
        return [] if all(_finds(folder, store) for folder in self.compilers.folders or {store.parent}) else [store]

    @property
    def _at_link(self) -> Sequence[str]:
        """The compiler's options for link-time optimisation; it calls those for links unused where it compiles."""
        if self.lto is None:
            return []
        # With more jobs ThinLTO sets no switches.
        mode = ["-flto"] if self.lto == "full" else ["-flto=thin", "-flto-jobs=1"]
        return [*mode, "-fuse-ld=lld", "-Wno-unused-command-line-argument"]

    def driver(self, variable: str) -> str:
        """Name the compiler of C or C++."""
        if self.compiler.name == "zig":
            return "zig cc" if variable == "CC" else "zig c++"
        file = Path(self.compiler.name)
        name = file.name if variable == "CC" or "clang++" in file.name else file.name.replace("clang", "clang++")
        return str(file.with_name(name))

    @property
    def launching(self) -> Sequence[str]:
        """The words before the compiler's."""
        if self._is_loaded:
            return []
        launcher = find_launcher(None)
        words = ["policybridge", "run"] if launcher is None else [_named(launcher)]
        given = [word for store in self._given for word in ("--decisions", str(store))]
        plugins = [] if self.plugins is None else ["--plugins", str(self.plugins.absolute())]
        return [*words, *given, *plugins, "--"]


def _finds(folder: Path, store: Path) -> bool:
    """Tell whether a compilation of a source in a folder finds a store by itself."""
    found = find_store(folder / "source.c") if store.name == NAME else None
    return bool(found and not found.refused and found.path == store.parent.resolve() / NAME)


def _named(launcher: str) -> str:
    """Give the launcher's name, if PATH has this one: another may be of another version."""
    on_path = shutil.which(_LAUNCHER)
    return _LAUNCHER if on_path and Path(on_path).samefile(launcher) else launcher
