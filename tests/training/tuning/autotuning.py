"""``policybridge autotune`` with a compiler whose runs are counted."""

import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from policybridge_client.cli import main
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult, DecisionLog, Site
from policybridge_train.farms.local import LocalFarm
from policybridge_train.tuning.search import Search

_SCRIPT = """#!/bin/sh
case " $* " in *" -emit-obj "*)
  echo . >> {log}
  compiles=$(wc -l < {log})
  {extra}
esac
exec {compiler} "$@"
"""


@dataclass(frozen=True)
class CountedCompiler:
    """A program named ``clang`` that runs a compiler and counts the objects that it is to make."""

    path: Path
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path, compiler: str, options: Sequence[str] = (), extra: str = "") -> "CountedCompiler":
        """Write it; ``extra`` is what its shell does before each object, of which it knows the number ``$compiles``."""
        folder.mkdir(parents=True, exist_ok=True)
        path, log = folder / "clang", folder / "log"
        log.touch()
        starting = shlex.join(Compiler.find(compiler).start)
        path.write_text(_SCRIPT.format(log=shlex.quote(str(log)), compiler=starting, extra=extra))
        path.chmod(0o755)
        return cls(path, tuple(options))

    @property
    def compiles(self) -> int:
        """The number of objects so far."""
        return len((self.path.parent / "log").read_text().splitlines())

    def words(self, store: Path, *words: object) -> list[str]:
        """Give the command's arguments."""
        return ["autotune", "--store", str(store), "--compiler", str(self.path), *self.options, *map(str, words)]

    def tune(self, store: Path, *words: object) -> int:
        """Run the command in this process; return its exit status."""
        return main(self.words(store, *words))

    def command(self, store: Path, *words: object) -> list[str]:
        """Give the command for a process of its own."""
        return [sys.executable, "-m", "policybridge_client.cli", *self.words(store, *words)]


def searches(store: Path) -> dict[str, Search]:
    """Give what the searches of a store have come to, by the module's name."""
    database = sqlite3.connect(store.with_name(f"{store.name}.work") / "progress.db")
    rows = database.execute("SELECT module, search FROM searches").fetchall()
    database.close()
    return {key.partition("@")[0]: msgspec.msgpack.decode(data, type=Search) for key, data in rows}


def rename_oddly(module: Module, function: str, compiler: str) -> None:
    """Give a static function of a module a name whose bytes are no UTF-8."""
    start = Compiler.find(compiler).start
    words = [*start, "-cc1", "-emit-llvm", "-disable-llvm-passes", "-x", "ir", str(module.bitcode), "-o", "-"]
    text = subprocess.run(words, check=True, capture_output=True).stdout
    assert f"@{function}(".encode() in text
    module.bitcode.write_bytes(text.replace(f"@{function}(".encode(), f'@"{function}\\FF%\\0A"('.encode()))


def compile_result(
    text: int,
    functions: Mapping[str, int],
    sites: Sequence[Site],
    digest: str,
    *,
    module: str = "",
    weak: tuple[str, ...] = (),
) -> CompileResult:
    """Give what a compile came to, at -Oz; ``module`` is the module's digest."""
    log = DecisionLog(list(sites), "Oz", module, weak)
    return CompileResult(dict(functions), totals={"text": text, "exec": text}, digest=digest, log=log)


def zig_compiler() -> FarmCompiler:
    """Compile by zig, on this machine."""
    return FarmCompiler(LocalFarm(), CompileTool(Compiler.find("zig")).recipe)
