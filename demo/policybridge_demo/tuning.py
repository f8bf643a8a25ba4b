"""The end of the demo: some seconds of ``policybridge autotune`` on its own modules."""

import argparse
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from policybridge_demo.compilation import CompileError, clean_environment
from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from policybridge_demo.report import progress
from policybridge_train import autotune_command as autotune
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module as Bitcode
from policybridge_train.corpus.bitcode import cc1_arguments, kept_arguments, to_bitcode
from policybridge_train.corpus.writing import CorpusWriter, remove
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.processes.threads import for_each

STORE: Final = Path(".cache/demo-tuned/decisions.db")
"""The tuned decisions, below the folder in which the demo is started."""

_BUDGET: Final = "1000"
"""Compiles of a module: more than the time allows."""

_INTERRUPTED: Final = 130


def is_tuned(module: Module) -> bool:
    """Tell whether the demo tunes a module: C gains little, and a minute is too short for all."""
    return module.library in ("libcxx", "libcxxabi")


def tune(modules: Sequence[Module], compiler: str, seconds: float, jobs: int, console: Console) -> None:
    """Tune modules for some seconds, and print the gain.

    Raises:
        CompileError: a module does not become bitcode.
        PolicyBridgeError: the compiler cannot be tuned.
        OSError: the store cannot be written.

    """
    # An earlier store would count as a gain of this run.
    remove(STORE.parent)
    STORE.parent.mkdir(parents=True)
    with TemporaryDirectory(prefix="policybridge-demo-") as name:
        writer = CorpusWriter(Path(name))
        running = Running()
        make = for_each(partial(_add, compiler, writer, running), modules, jobs, running)
        for _ in progress(make, "bitcode", len(modules), console):
            pass
        writer.write()
        console.print(f"tuning {len(modules)} of the modules for {seconds:g} seconds:", highlight=False)
        status = _autotune("--corpus", name, "--compiler", compiler, "--minutes", seconds / 60, "--jobs", jobs)
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    if not status:
        console.print(_APPLY, markup=False, highlight=False, soft_wrap=True)


_APPLY: Final = """\
The figures are those of the very modules that were tuned. The decisions apply without a server."""


def _autotune(*words: object) -> int:
    parser = argparse.ArgumentParser()
    autotune.add_arguments(parser)
    return autotune.run(parser.parse_args(["--store", str(STORE), "--budget", _BUDGET, *map(str, words)]))


def _add(compiler: str, writer: CorpusWriter, running: Running, module: Module) -> None:
    """Add a module to a corpus: bitcode from the compiler's own front end, with the driver's own arguments.

    So it is tuned as it is compiled. (Besides, `zig cc` merges equal strings in its objects, with and without a store.)
    """
    arguments = _arguments(compiler, module)
    root = library_root()
    name = f"{module.library}/{module.path}"
    output = writer.temporary(name)
    words = [*Compiler.find(compiler).start, *to_bitcode(arguments, output)]
    done = compile_by(words, Limits(), cwd=root, running=running)
    if not done.ok:
        raise CompileError(f"{module.path}: {done.message}")
    kept = kept_arguments(arguments, root)
    writer.add(Bitcode(name, output.parent, kept, module.library, module.path, module.language), output)


def _arguments(compiler: str, module: Module) -> list[str]:
    with TemporaryDirectory(prefix="policybridge-demo-") as name:
        asking = [*COMPILERS[compiler](module, Path(name) / "module.o"), "-###"]
        environment = {**clean_environment(Path(name)), "LC_ALL": "C"}
        said = subprocess.run(
            asking, cwd=library_root(), env=environment, capture_output=True, errors="surrogateescape", check=False
        )
    arguments = cc1_arguments(said.stderr)
    if arguments is None:
        raise CompileError(f"{compiler} does not tell how it compiles {module.path}: {said.stderr[:500]}")
    return arguments
