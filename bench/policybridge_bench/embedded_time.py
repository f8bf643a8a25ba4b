"""What an embedded policy adds to compile time: ``python -m policybridge_bench.embedded_time PLUGIN --corpus DIR``.

PLUGIN is a file of ``policybridge embed --for plugin-22``. Modules that the hash of their names chooses are compiled
with it and without it by turns; the processor time of a module is the least of its rounds.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.command_line import count
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.corpus.description import Corpus, Module


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog="policybridge_bench.embedded_time", description=__doc__)
    parser.add_argument("plugin", type=Path, metavar="PLUGIN")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
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


def _compare(arguments: argparse.Namespace) -> str:
    compiler, plugin = Compiler.find(arguments.compiler), str(arguments.plugin.absolute())
    found = Corpus.open(arguments.corpus).modules
    modules = sorted(found, key=lambda module: hashlib.sha256(module.name.encode()).digest())[: arguments.modules]
    ways = ((), ("-load", plugin, f"-fpass-plugin={plugin}"))
    seconds = [
        [
            min(times)
            for times in zip(*(_by_turns(compiler, module, ways) for _ in range(arguments.rounds)), strict=True)
        ]
        for module in modules
    ]
    plain, embedded = (sum(column) for column in zip(*seconds, strict=True))
    factors = median(after / before for before, after in seconds)
    total = f"{plain:.2f} s plain, {embedded / plain:.3f} times that in all"
    return f"{len(modules)} modules: {total}, {factors:.3f} times the median"


def _by_turns(compiler: Compiler, module: Module, ways: Sequence[Sequence[str]]) -> list[float]:
    with TemporaryDirectory(prefix="pb-") as folder:
        return [_seconds(compiler.command(module, Path(folder) / "o", way)) for way in ways]


def _seconds(command: Sequence[str]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        raise PreconditionError(f"{command[-1]} does not compile: {done.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
