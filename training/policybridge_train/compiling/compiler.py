"""The LLVMs of this machine."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.module import Module

_VERSION: Final = re.compile(r"clang version (\d+)\.[\w.+~-]+")
_CLANG: Final = re.compile(r"clang(-\d+)?")
_ZIG: Final = ("-m", "ziglang", "clang")


# Arguments of `clang -cc1` (clang/include/clang/Driver/Options.td, CC1Option) that still matter for bitcode: they steer
# LLVM's pipeline and its code generator. Those of the preprocessor and of the front end have done their work.
_WITH_VALUE: Final = frozenset(
    shlex.split("""
        -triple -mrelocation-model -pic-level -target-cpu -target-feature -tune-cpu -target-abi -stack-protector
        -stack-protector-buffer-size -mllvm -mcode-model -mfloat-abi -mthread-model -split-stacks
    """)
)
_ALONE: Final = re.compile(
    r"-O[0-3sz]?|-pic-is-pie|-ffunction-sections|-fdata-sections|-fno-builtin.*|-ffreestanding|-vectorize-(loops|slp)"
    r"|-f(no-)?unroll-loops|-funwind-tables=\d|-mframe-pointer=[\w-]+|-exception-model=\w+|-faddrsig|-fno-plt"
    r"|-mconstructor-aliases|-fno-jump-tables|-munwind-tables|-fuse-init-array|-fno-use-init-array|-mnoexecstack"
    r"|-femulated-tls|-f(no-)?unique-section-names|-mcode-model=\w+|-mcmodel=\w+|-ffp-contract=\w+|-fmath-errno"
    r"|-fwrapv|-fdwarf2-cfi-asm|-flto|-disable-free|-fsanitize=.*|-fxray.*"
)


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


def newest_compiler() -> Compiler:
    """Find the clang of the highest version on PATH; the wheel's, if there is none.

    Raises:
        NotFoundError: there is none at all.

    """
    found = [(compiler.major, compiler) for compiler in _clangs()]
    return max(found, key=lambda pair: pair[0])[1] if found else _wheel()


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


def backend_arguments(arguments: Sequence[str]) -> list[str]:
    """Give those of a recorded module's arguments that still matter for bitcode, in their order."""
    return list(_kept(arguments))


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            value = next(words, None)
            if value is not None:
                yield from (word, value)
        elif _ALONE.fullmatch(word):
            yield word
