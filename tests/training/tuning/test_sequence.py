"""Compiles of a search without a plugin."""

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import pytest

from policybridge_client.llvm.asked import asked
from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compilation import ByDecisions, compile_command
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import compile_module
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileError, CompileResult
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.tuning.search import TUNED
from tests.client.compilers import ZIG, parameters, write_source
from tests.training.corpora import write_corpus

ARGUMENTS = ("-triple", "x86_64-unknown-linux-gnu", "-Oz")


def made_module(folder: Path, compiler: str, functions: int = 8) -> Module:
    source = write_source(folder, functions=functions)
    begin = [*ZIG[:-1], "clang"] if compiler == "zig" else [compiler]
    emit = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", str(source), "-o", str(folder / "module.bc")]
    subprocess.run([*begin, *emit], check=True)
    return Module("module", folder, arguments=ARGUMENTS)


def measured(tool: CompileTool, module: Module, decisions: Mapping[str, bool]) -> CompileResult:
    return compile_module(tool, module, ByDecisions(decisions), TUNED).checked(module.name)


@pytest.mark.parametrize("compiler", ["zig", *parameters("clang-22", "clang-19")])
def test_the_decisions_that_differ_from_llvms_own_make_the_same_object_again(tmp_path: Path, compiler: str) -> None:
    module = made_module(tmp_path, compiler)
    tool = CompileTool(Compiler.find(compiler), interactive=True)
    plain = measured(tool, module, {})
    assert plain.deviations() == {}
    assert plain.costs["module0"] > 0
    assert {len(site.numbers) for site in plain.sites} == {len(NUMBERS)}
    named = {site.callee: dict(zip(NUMBERS, site.numbers, strict=True)) for site in plain.sites}
    assert named["middle0"]["callee_local"] == 1
    assert named["middle0"]["callee_instructions"] > named["tiny"]["callee_instructions"] > 0
    flipped = measured(tool, module, {site.key: not site.default for site in plain.sites if "middle" in site.callee})
    assert flipped.digest != plain.digest
    again = measured(tool, module, flipped.deviations())
    assert (again.digest, again.text) == (flipped.digest, flipped.text)


def test_where_an_asking_compiler_differs_by_itself_the_sizes_are_those_of_a_plain_compile(tmp_path: Path) -> None:
    # LLVM's heuristic inlines a call of a function to itself at -O2; an asking LLVM never does.
    source = "int sink(int);\nstatic int f(int n, int k) { if (k) return n; return sink(f(n - 1, 1)) ^ n; }\n"
    source += "int g(int n) { return f(n, 0) + f(n + 1, 0); }\n"
    (module,) = write_corpus(tmp_path, {"one/f.c": source}, level="-O2").modules
    compiler = Compiler.find("zig")
    found = measured(CompileTool(compiler), module, {})
    assert compile_by(compile_command(compiler, module, tmp_path / "plain.o"), Limits()).ok
    made = (tmp_path / "plain.o").read_bytes()
    assert asked(compile_command(compiler, module, tmp_path / "asking.o"), {}).ok
    assert made != (tmp_path / "asking.o").read_bytes()
    assert found.digest == hashlib.sha256(made).hexdigest()
    assert found.text == ObjectFile(made).text


def test_a_module_that_does_not_compile_and_one_that_takes_too_long_say_so(tmp_path: Path) -> None:
    module = made_module(tmp_path, "zig", functions=300)
    compiler = Compiler.find("zig")
    with pytest.raises(CompileError, match=r"module: timeout: it was ended after 0\.05 seconds"):
        measured(CompileTool(compiler, Limits(seconds=0.05)), module, {})
    module.bitcode.write_bytes(b"no bitcode")
    with pytest.raises(CompileError, match=r"module: .*error: "):
        measured(CompileTool(compiler), module, {})


@pytest.mark.parametrize("compiler", parameters("clang-19"))
def test_a_module_whose_default_decisions_are_not_known_is_named(compiler: str, tmp_path: Path) -> None:
    (module,) = write_corpus(tmp_path, {"p/f.c": "int f(void) { return 1; }"}, compiler=compiler, level="-O2").modules
    with pytest.raises(CompileError, match=r"p/f\.c: LLVM's own decisions are not known"):
        measured(CompileTool(Compiler.find(compiler), interactive=True), module, {})


def test_all_compiles_end_when_another_thread_stops_them(tmp_path: Path) -> None:
    module = made_module(tmp_path, "zig", functions=300)
    running = Running()
    tool = CompileTool(Compiler.find("zig"), running=running)
    errors: list[Exception] = []

    def measure() -> None:
        try:
            measured(tool, module, {})
        except (CompileError, PreconditionError) as error:
            errors.append(error)

    thread = Thread(target=measure)
    thread.start()
    while not running._ends and thread.is_alive():
        thread.join(0.01)
    running.end()
    thread.join(60)
    assert len(errors) == 1
