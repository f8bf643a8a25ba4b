"""What an embedded policy adds to compile time: ``python -m tests.measures.embedded_time PLUGIN --corpus DIR``.

PLUGIN is a file of ``policybridge embed --for plugin-22``. Modules that the hash of their names chooses are compiled
with it and without it by turns; the processor time of a module is the least of its rounds.

They are compiled from the corpus' bitcode, which leaves the front end out, or with ``--sources`` from their sources, as
a user compiles them: from the build trees that ``policybridge corpus debian --work DIR --keep`` leaves in DIR. Modules
whose sources do not compile there are passed over; the count of those that were is printed.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

import numpy as np

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.command_line import count
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog="tests.measures.embedded_time", description=__doc__)
    parser.add_argument("plugin", type=Path, metavar="PLUGIN")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sources", type=Path, metavar="DIR", help="the build trees; see above")
    parser.add_argument("--compiler", default="clang-22", metavar="NAME")
    parser.add_argument("--modules", type=count, default=100, metavar="N")
    parser.add_argument("--rounds", type=count, default=3, metavar="N")
    arguments = parser.parse_args(words)
    try:
        print(_compare(arguments))
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    return 0


@dataclass(frozen=True)
class _FromBitcode:
    compiler: Compiler

    def can(self, module: Module) -> bool:
        return module.bitcode.exists()

    def seconds(self, module: Module, way: Sequence[str]) -> float:
        with TemporaryDirectory(prefix="pb-") as folder:
            return _seconds(compile_command(self.compiler, module, Path(folder) / "o", way))


@dataclass(frozen=True)
class _FromSource:
    compiler: Compiler
    trees: Path

    def can(self, module: Module) -> bool:
        try:
            self.seconds(module, ())
        except (OSError, PreconditionError):
            return False
        return True

    def seconds(self, module: Module, way: Sequence[str]) -> float:
        with TemporaryDirectory(prefix="pb-") as folder:
            words = (*module.arguments, *way, "-o", f"{folder}/o", "-x", module.language, module.source)
            return _seconds([*self.compiler.start, "-cc1", *words], self.trees / module.project / "build")


def _compare(arguments: argparse.Namespace) -> str:
    compiler, plugin = Compiler.find(arguments.compiler), str(arguments.plugin.absolute())
    job = _FromSource(compiler, arguments.sources) if arguments.sources else _FromBitcode(compiler)
    found = Corpus.open(arguments.corpus).modules
    ordered = sorted(found, key=lambda module: hashlib.sha256(module.name.encode()).digest())
    modules = list(islice(filter(job.can, ordered), arguments.modules))
    if not modules:
        raise PreconditionError(f"no module of {arguments.corpus} can be compiled; --sources wants its build trees")
    ways = ((), ("-load", plugin, f"-fpass-plugin={plugin}"))
    rounds = [[[job.seconds(module, way) for way in ways] for module in modules] for _ in range(arguments.rounds)]
    seconds = np.min(rounds, axis=0)
    plain, embedded = seconds.sum(axis=0)
    factors = np.median(seconds[:, 1] / seconds[:, 0])
    total = f"{plain:.2f} s plain, {embedded / plain:.3f} times that in all"
    return f"{len(modules)} modules: {total}, {factors:.3f} times the median"


def _seconds(command: Sequence[str], folder: Path | None = None) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        raise PreconditionError(f"{command[-1]} does not compile: {done.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
