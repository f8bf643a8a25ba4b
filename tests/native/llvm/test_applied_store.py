"""The lines at the end of ``policybridge autotune``, where no launcher is installed: the compiler loads the plugin."""

import shlex
import subprocess
from pathlib import Path

import pytest

from policybridge_train.compiling.compiler import Compiler
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.tuned_compiler import TunedCompiler
from tests.native.llvm.plugins import need
from tests.training.tuning.autotuning import CountedCompiler
from tests.training.tuning.boxes import boxes


@pytest.fixture
def tuned(tmp_path: Path, major: str, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tune one source, in a repository of its own; give the store."""
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    Path("a b.c").write_text(boxes("a"))
    compiler = CountedCompiler.of(tmp_path / "bin", need(f"clang-{major}"), ("--plugins", str(plugin.parent)))
    store = tmp_path / "policybridge.decisions"
    assert compiler.tune(store, "--budget", 8, "--", compiler.path, "-Oz", "-c", "a b.c", "-o", "plain.o") == 0
    return store


def compiled(line: str) -> bytes:
    subprocess.run(f"{line.removesuffix('…')} -Oz -c 'a b.c' -o made.o", shell=True, check=True, capture_output=True)
    return Path("made.o").read_bytes()


@pytest.mark.parametrize("name", ["policybridge.decisions", "tuned.db"])
def test_a_compiler_that_loads_the_plugin_applies_the_store(tuned: Path, major: str, plugin: Path, name: str) -> None:
    store = tuned.rename(tuned.with_name(name))
    compiler = Compiler.find(f"clang-{major}")
    (line,) = Ending(TunedCompiler(store, compiler, BuildCompilers.of([]), plugin.parent, None, plugin), ()).applying()
    assert (str(store) in line) is (name == "tuned.db")
    made = compiled(line)
    assert made != Path("plain.o").read_bytes()
    store.unlink()
    assert compiled(f"clang-{major}") == Path("plain.o").read_bytes()


def test_make_and_cmake_build_with_the_plugin_and_warn_of_nothing(tuned: Path, major: str, plugin: Path) -> None:
    Path("Makefile").write_text("CFLAGS = -Oz -Werror\nmade.o: a\\ b.c\n\t$(CC) $(CFLAGS) -c 'a b.c' -o made.o\n")
    source = 'project(p C)\nset(CMAKE_C_FLAGS "-Oz -Werror")\nadd_library(p "a b.c")\nadd_executable(q main.c)\n'
    Path("CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\n{source}")
    Path("main.c").write_text("int main(void) { return 0; }\n")
    name = need(f"clang-{major}")
    used = BuildCompilers.of([BuildCommand(Path.cwd(), name, ("-Oz", "-c", "a b.c"))])
    for build in (["make"], ["cmake", "--build", "build"]):
        lines = list(
            Ending(TunedCompiler(tuned, Compiler.find(name), used, plugin.parent, None, plugin), build).applying()
        )
        for line in lines:
            subprocess.run(line, shell=True, check=True, capture_output=True)
    loading = shlex.join([f"-fpass-plugin={plugin}"])
    assert loading in lines[0]
    made = Path("made.o").read_bytes()
    assert made != Path("plain.o").read_bytes()
    (by_cmake,) = Path("tuned").rglob("a*b.c.o")
    assert by_cmake.stat().st_size == len(made)


def test_a_build_of_one_command_is_that_command_with_the_plugin(tuned: Path, major: str, plugin: Path) -> None:
    name = need(f"clang-{major}")
    build = [name, "-Oz", "-c", "a b.c", "-o", "made.o"]
    used = BuildCompilers.of([BuildCommand(Path.cwd(), name, tuple(build[1:]))])
    (line,) = Ending(TunedCompiler(tuned, Compiler.find(name), used, plugin.parent, None, plugin), build).applying()
    subprocess.run(line, shell=True, check=True, capture_output=True)
    assert Path("made.o").read_bytes() != Path("plain.o").read_bytes()
