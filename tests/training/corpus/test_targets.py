"""``policybridge corpus --target``: the sources of a native build become modules of another machine."""

from pathlib import Path
from typing import Final

import pytest

from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler, newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.debian.jobs import ToolsRecipe
from policybridge_train.corpus.description import Corpus
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import compile_by
from tests.training.corpus.projects import corpus_command, write_project

# No header, so that no target's headers need to be here.
_SOURCE: Final = """
#if !defined(WANTED)
#error compiled for another machine
#endif
template <class T> static T twice(T value) { return value + value; }
long counted(long value) { return twice(value) * static_cast<long>(sizeof(void *)); }
"""
_TARGETS: Final = {
    "aarch64-linux-gnu": ("__aarch64__", "aarch64-", 183),
    "riscv64-linux-gnu": ("__riscv", "riscv64-", 243),
    "thumbv7-linux-gnueabihf": ("__thumb2__", "thumbv7-", 40),
}


def _recorded(tmp_path: Path, target: str, flags: str = "") -> Corpus:
    project = write_project(
        tmp_path / "small",
        {"a.cc": _SOURCE.replace("WANTED", _TARGETS[target][0]), "Makefile": f"a.o:\n\t-g++ {flags} -c a.cc\n"},
    )
    output = tmp_path / "corpus"
    words = ("record", "--target", target, "--output", output, "--", "make")
    done = corpus_command(*words, cwd=project)
    assert not done.returncode, done.stderr
    return Corpus.open(output)


def _object(module: Module, tmp_path: Path) -> ObjectFile:
    done = compile_by(compile_command(newest_compiler(), module, tmp_path / "a.o"), Limits())
    assert done.ok, done
    return ObjectFile.read(tmp_path / "a.o")


@pytest.mark.parametrize("target", _TARGETS)
def test_modules_are_compiled_from_source_for_the_target_and_not_relabelled(tmp_path: Path, target: str) -> None:
    (module,) = _recorded(tmp_path, target).modules
    _, triple, machine = _TARGETS[target]

    arguments = module.arguments
    assert arguments[arguments.index("-triple") + 1].startswith(triple)
    assert _object(module, tmp_path).machine == machine


@pytest.mark.parametrize("flags", ["-march=x86-64-v3 -mtune=native", "-m64 -msse4.2", "--sysroot=/", "-DA=-mavx"])
def test_flags_of_the_builds_own_machine_are_left_out(tmp_path: Path, flags: str) -> None:
    corpus = _recorded(tmp_path, "aarch64-linux-gnu", flags)
    (module,) = corpus.modules
    assert not corpus.failures
    assert _object(module, tmp_path).machine == 183
    assert not {"-target-cpu=x86-64-v3", "+sse4.2", "x86-64-v3"} & set(module.arguments)


@pytest.mark.parametrize("target", ["frobnitz-linux-gnu", "", "../etc", "a\nb"])
def test_a_target_that_the_clang_does_not_know_is_refused_before_the_build(tmp_path: Path, target: str) -> None:
    project = write_project(tmp_path / "small", {"Makefile": "a.o:\n\ttouch built\n"})
    done = corpus_command("record", "--target", target, "--output", tmp_path / "corpus", "--", "make", cwd=project)
    assert done.returncode == 2
    assert not (project / "built").exists()
    assert f"does not compile for {target!r}" in done.stderr
    assert "aarch64-linux-gnu" in done.stderr


def test_the_machines_of_a_farm_compile_for_the_same_target() -> None:
    front_end = FrontEnd(Compiler.find("zig"), target="riscv64-linux-musl")
    assert ToolsRecipe.of(front_end).target == "riscv64-linux-musl"
