"""The LLVMs of this machine, and how each machine of a farm gets its compiler."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_client.decisions import By, Store, read_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_train.compiling.limits import Limits
from policybridge_train.farms.contract import Machine
from policybridge_train.processes.process import Running

_VERSION: Final = re.compile(r"clang version (\d+)\.[\w.+~-]+")
_CLANG: Final = re.compile(r"clang(-\d+)?")
_ZIG: Final = ("-m", "ziglang", "clang")


@dataclass(frozen=True)
class Compiler:
    """A clang, or the one in the wheel ``ziglang``, called as ``clang -cc1``.

    Attributes:
        name: as the user names it: ``clang-22``, ``zig``, a path.
        start: the words that start it.

    """

    name: str
    start: tuple[str, ...]

    @classmethod
    def find(cls, name: str) -> "Compiler":
        """Find a compiler by its name or path; ``zig`` is that of the wheel.

        Raises:
            NotFoundError: there is no such compiler; the message names some that would do.

        """
        if name == "zig":
            return cls(name, (sys.executable, *_ZIG))
        path = shutil.which(name)
        if path is None:
            message = f"there is no compiler {name!r}; name a clang (clang-22, a path), or zig, from PyPI"
            raise NotFoundError(lacking(message))
        return cls(name, (str(Path(path).absolute()),))

    @property
    def loads_plugins(self) -> bool:
        """Whether it can load LLVM's plugins; zig's cannot, because it has no dynamic linker in it."""
        return len(self.start) == 1

    @cached_property
    def identity(self) -> str:
        """Distinguishes this compiler from others: its version, and the size and time of its file."""
        file = Path(self.start[0]).resolve() if self.loads_plugins else _zigs_file()
        stat = file.stat()
        return f"{self.version} {stat.st_size} {stat.st_mtime_ns}"

    @cached_property
    def version(self) -> str:
        """The first line that the compiler says of itself.

        Raises:
            NotFoundError: it cannot be run, or is no clang.

        """
        try:
            said = subprocess.run([*self.start, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotFoundError(f"{self.name} does not run: {error}") from error
        if not _VERSION.search(said):
            raise NotFoundError(f"{self.name} is no clang: it says {said[:80]!r}")
        return said.partition("\n")[0]

    @cached_property
    def major(self) -> int:
        """LLVM's major version."""
        found = _VERSION.search(self.version)
        assert found is not None  # noqa: S101 - `version` has seen it
        return int(found[1])


def _zigs_file() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise NotFoundError("zig's clang comes with the package ziglang: pip install 'policybridge[llvm]'")
    return Path(spec.origin).with_name("zig")


@dataclass(frozen=True)
class CompileTool:
    """A compiler of a machine, and the settings that all compiles there share. Usable from any thread.

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
    def _loading(self) -> Sequence[str]:
        start = self._start
        return start.with_plugin(str(self.plugin), (), early=loads_early(start))[len(start.words) :]

    @property
    def recipe(self) -> "CompileRecipe":
        """The recipe of the same tool for other machines: with the plugin of the same folder, or without a plugin."""
        compiler, folder = self.compiler, self.plugin.parent if self.plugin else None
        return CompileRecipe(compiler.name, compiler.version, self.limits, folder, interactive=folder is None)

    def with_plugin(self, words: Sequence[str], options: Sequence[str]) -> list[str]:
        """Add the plugin, with options of the plugin, to a command of this compiler."""
        # clang recognises -cc1 only as its first argument.
        first = len(self.compiler.start) + 1
        flags = [word for option in options for word in ("-mllvm", option)]
        return [*words[:first], *self._loading, *flags, *words[first:]]

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


def same_compiler(name: str, version: str) -> Compiler:
    """Find a compiler by its name or path, on the machine where this is called.

    Raises:
        NotFoundError: there is none.
        PreconditionError: it is of another version.

    """
    compiler = Compiler.find(name)
    if compiler.version != version:
        raise PreconditionError(f"{name} is {compiler.version!r} here, and {version!r} where the run is")
    return compiler


def newest_compiler() -> Compiler:
    """Find the clang of the highest version on PATH; the wheel's, if there is none.

    Raises:
        NotFoundError: there is neither a clang nor the wheel.

    """
    return newest_clang() or _wheel()


def newest_clang() -> Compiler | None:
    """Find the clang of the highest version on PATH, if there is one."""
    return max(_clangs(), key=lambda compiler: compiler.major, default=None)


def _wheel() -> Compiler:
    compiler = Compiler.find("zig")
    try:
        _ = compiler.version
    except NotFoundError:
        raise NotFoundError(
            "there is no clang: install one (Debian: apt install clang), or pip install 'policybridge[llvm]'"
        ) from None
    return compiler


def _clangs() -> Iterator[Compiler]:
    names = {name for folder in os.get_exec_path() for name in _names(folder) if _CLANG.fullmatch(name)}
    for name in sorted(names):
        try:
            compiler = Compiler.find(name)
            _ = compiler.major
        except NotFoundError:
            continue
        yield compiler


def _names(folder: str) -> list[str]:
    try:
        return [file.name for file in Path(folder or ".").iterdir()]
    except OSError:
        return []
