"""The LLVMs of this machine."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.flags import backend_arguments
from policybridge_train.compiling.module import Module

_VERSION: Final = re.compile(r"clang version (\d+)\.[\w.+~-]+")
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
            NotFoundError: there is none; the message says what would be one.

        """
        if name == "zig":
            return cls(name, (sys.executable, *_ZIG))
        path = shutil.which(name)
        if path is None:
            raise NotFoundError(f"there is no compiler {name!r}; name a clang (clang-22, a path), or zig, from PyPI")
        return cls(name, (str(Path(path).absolute()),))

    @property
    def loads_plugins(self) -> bool:
        """Whether it can load LLVM's plugins; zig's cannot, because it has no dynamic linker in it."""
        return len(self.start) == 1

    @cached_property
    def identity(self) -> str:
        """What tells this compiler from others: its version, and the size and the time of its file."""
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
        """Of LLVM's version."""
        found = _VERSION.search(self.version)
        assert found is not None  # noqa: S101 - `version` has seen it
        return int(found[1])

    def command(self, module: Module, output: Path, extra: Sequence[str] = ()) -> list[str]:
        """Give the command that compiles a module to an object file; ``extra`` are further arguments of cc1."""
        flags = backend_arguments(module.arguments)
        inputs = ["-x", "ir", str(module.bitcode)]
        return [*self.start, "-cc1", "-emit-obj", *flags, *extra, "-o", str(output), *inputs]


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


def _zigs_file() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise NotFoundError("zig's clang comes with the package ziglang: pip install 'policybridge[llvm]'")
    return Path(spec.origin).with_name("zig")
