"""The lines that apply a store fit the folder that CMake, Meson or a configure script made, wherever the build runs."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from policybridge_train.compiling.compiler import Compiler
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.tuned_compiler import TunedCompiler
from tests.native.llvm.plugins import need

LAUNCHING = "policybridge run --"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.c").write_text("int f(void) { return 0; }\n")
    monkeypatch.chdir(folder)
    return folder


def applied(*build: str, sources: Sequence[Path] = (Path("a.c"),), folder: Path | None = None) -> list[str]:
    """Give the lines for a build by clang 22 of sources, in a folder, where the store is in the working folder."""
    Path("policybridge.decisions").write_text("policybridge-decisions 1\n")
    clang = str(Compiler.find(need("clang-22")).start[0])
    words = tuple(str(source.absolute()) for source in sources)
    used = BuildCompilers.of([BuildCommand(folder or Path.cwd(), clang, (clang, "-Oz", "-c", *words))])
    tuned = TunedCompiler(Path("policybridge.decisions"), Compiler.find("clang-22"), used)
    return list(Ending(tuned, build).applying())


def run(line: str) -> str:
    """Run a line whose launcher is replaced by a program that starts the compiler."""
    for launching in (LAUNCHING, LAUNCHING.replace(" ", ";")):
        line = line.replace(launching, "env")
    return subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout


def cmake(*words: str) -> None:
    Path("CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_library(p a.c)\n")
    given = ["-DCMAKE_BUILD_TYPE=MinSizeRel", f"-DCMAKE_C_COMPILER={need('clang-22')}"]
    subprocess.run([need("cmake"), "-S", ".", "-B", "build", *given, *words], check=True, capture_output=True)


@pytest.mark.parametrize("build", [["make", "-j2", "-C", "build"], ["make", "-Cbuild"], ["make", "--directory=build"]])
def test_a_cmake_folder_that_make_builds_is_configured_again_because_its_makefile_has_the_compiler(
    build: list[str],
) -> None:
    cmake("-G", "Unix Makefiles")
    configure, made = applied(*build)
    assert configure == "cmake build '-DCMAKE_C_COMPILER_LAUNCHER=policybridge;run;--'"
    run(configure)
    assert "env /" in run(f"{made} -v")


@pytest.mark.parametrize("build", [["make"], ["ninja"], ["cmake", "--build", "."]])
def test_in_a_cmake_folder_the_lines_configure_that_folder_and_name_the_store_that_no_source_finds(
    build: list[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmake("-G", "Unix Makefiles" if build[0] == "make" else "Ninja")
    monkeypatch.chdir("build")
    configure, made = applied(*build, sources=[project / "a.c"])
    launching = f"policybridge;run;--decisions;{project}/build/policybridge.decisions;--"
    assert configure == f"cmake . '-DCMAKE_C_COMPILER_LAUNCHER={launching}'"
    run(configure.replace(launching, "env"))
    assert "env /" in run(f"{made} -v")


@pytest.mark.parametrize("build", [["./build.sh"], ["make"], ["cmake", "--build", "whole"]])
def test_a_cmake_folder_within_the_build_as_externalproject_s_gets_the_launcher_itself(build: list[str]) -> None:
    cmake()
    Path("whole").mkdir()
    Path("whole", "CMakeCache.txt").touch()
    configure, made, *_ = applied(*build, folder=Path("build").absolute())
    assert configure == "cmake build '-DCMAKE_C_COMPILER_LAUNCHER=policybridge;run;--'"
    run(configure)
    assert "env /" in run(f"{made} -v")


def test_a_meson_folder_that_another_program_sets_up_is_to_be_removed() -> None:
    Path("build/meson-info").mkdir(parents=True)
    Path("build/meson-info/meson-info.json").touch()
    told, *_ = applied("./build.sh", folder=Path("build").absolute())
    assert told == "# build keeps the compiler with which it was configured: remove it first"


def test_a_meson_folder_is_set_up_anew_from_inside_and_outside_with_its_options_and_flags(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("meson.build").write_text(
        "project('p', 'c')\nstatic_library('p', 'a.c', c_args: '-DM=' + get_option('more'))\n"
    )
    Path("meson_options.txt").write_text("option('more', type: 'string', value: '1')\n")
    environment = {**os.environ, "CC": need("clang-22"), "CFLAGS": "-DN=2 -fno-common"}
    words = [need("meson"), "setup", "--buildtype", "minsize", "-Dmore=7", "build"]
    subprocess.run(words, check=True, capture_output=True, env=environment)
    outside, _ = applied("ninja", "-C", "build")
    assert outside.startswith(f"env 'CC={LAUNCHING} clang-22' meson setup ")
    monkeypatch.chdir("build")
    setup, made = applied("ninja", sources=[project / "a.c"])
    assert setup.endswith(f" tuned {project}")
    run(setup.replace(f"{LAUNCHING[:-2]}--decisions {project}/build/policybridge.decisions --", LAUNCHING))
    said = run(f"{made} -v")
    assert all(f" {word} " in said for word in ("-Oz", "-DM=7", "-DN=2", "-fno-common"))
    assert " env clang-22 " in said


CONFIGURED = """
all: a.o
a.o: a.c
\t$(CC) -Oz -c a.c -o a.o
Makefile: configure
\tfalse
configure:
clean:
\trm -f a.o
"""


def test_a_configured_build_is_cleaned_because_its_makefile_would_make_the_configure_script_again() -> None:
    Path("its build").mkdir()
    for folder in (Path(), Path("its build")):
        (folder / "config.log").touch()
        (folder / "Makefile").write_text(CONFIGURED)
        (folder / "configure").touch()
        (folder / "a.c").touch()
        os.utime(folder / "configure", (0, 0))
    for build in (["make", "-j2"], ["make", "-j2", "-C", "its build"]):
        clean, made, other = applied(*build)
        assert (clean, other) == (
            shlex.join([build[0], *build[2:], "clean"]),
            f"or: ./configure 'CC={LAUNCHING} clang-22'",
        )
        run(clean)
        assert "env clang-22 -Oz" in run(made)


PERLS = """
FIRST_MAKEFILE = Makefile
all: a.o
a.o: a.c $(FIRST_MAKEFILE)
\t$(CC) -Oz -c a.c -o a.o
$(FIRST_MAKEFILE): Makefile.PL
\tfalse
clean:
\tmv $(FIRST_MAKEFILE) Makefile.old
"""


@pytest.mark.parametrize("name", ["Makefile", "other.mk"])
def test_a_makefile_that_makes_itself_as_that_of_a_perl_module_stays_as_it_is(name: str) -> None:
    Path(name).write_text(PERLS.replace("FIRST_MAKEFILE = Makefile", f"FIRST_MAKEFILE = {name}"))
    Path("Makefile.PL").touch()
    os.utime("Makefile.PL", (0, 0))
    Path("a.o").touch()
    build = ["make", "-j2", *(["-f", name] if name != "Makefile" else [])]
    (line,) = applied(*build)
    assert "env clang-22 -Oz" in run(line)


@pytest.mark.parametrize(
    ("given", "written", "flags"),
    [
        ("", "CC = ccache clang-22\nWARN = -Wall\nCC += $(WARN) -I.  # here", "-Wall -I."),
        ("", "CC := /usr/bin/clang-22 -std=gnu99", "-std=gnu99"),
        ("CC=clang-22 -m32", "CC = clang-22 -std=gnu99\nCC += -I.", "-m32"),
        ("", "CC = gcc -fipa-pta", ""),
        ("", "", ""),
    ],
)
def test_what_follows_the_compiler_in_a_makefile_or_in_the_command_follows_it_behind_the_launcher(
    given: str, written: str, flags: str
) -> None:
    Path("Makefile").write_text(f"{written}\na.o: a.c\n\t$(CC) -c a.c -o a.o -Oz\n")
    (line,) = applied("make", *filter(None, [given]))
    words = run(line.replace("CC=", "CC=echo ", 1)).splitlines()[-1]
    assert words.split() == ["env", "clang-22", *flags.split(), "-c", "a.c", "-o", "a.o", "-Oz"]


def test_what_follows_the_compiler_in_the_environment_counts_where_the_makefile_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "clang-22 -DN=1")
    for written, flags in (("CC ?= gcc", " -DN=1"), ("CC = clang-22 -DN=2", " -DN=2")):
        Path("Makefile").write_text(written)
        assert applied("make") == [f"make -B 'CC={LAUNCHING} clang-22{flags}'"]
    Path("Makefile").write_text("CC ?= gcc")
    assert applied("env", "CC=clang-22 -DN=3", "make") == [f"make -B 'CC={LAUNCHING} clang-22 -DN=3'"]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (
            "\"'--with-x' 'CC=ccache clang-22 -m32' 'CFLAGS=-Oz -g' 'LIBS=a'\\''b'\"",
            ["--with-x", "CFLAGS=-Oz -g", "LIBS=a'b"],
        ),
        ("'--with-x CC=clang-22'", ["--with-x"]),
        ("'unfinished", []),
    ],
)
def test_a_configure_script_is_told_again_what_it_was_told(written: str, kept: list[str]) -> None:
    for name in ("configure", "config.log", "Makefile"):
        Path(name).touch()
    Path("config.status").write_text(f"ac_pwd=/x\nac_cs_config={written}\n")
    *_, line = applied("make")
    flags = " -m32" if "-m32" in written else ""
    assert shlex.split(line) == ["or:", "./configure", *kept, f"CC={LAUNCHING} clang-22{flags}"]


@pytest.mark.parametrize("program", ["ninja", "scons"])
def test_where_no_variable_names_the_compiler_the_lines_tell_what_to_write_into_the_builds_files(program: str) -> None:
    told, line = applied(program, "-j2", "all")
    assert told == f"# {program} takes its compilers from its files alone, so write there"
    assert line == f"{LAUNCHING} clang-22 …"


def test_a_build_that_env_starts_keeps_its_variables_but_for_the_compiler() -> None:
    Path("Makefile").write_text("a.o: a.c\n\t$(CC) $(FLAGS) -c a.c -o a.o -Oz\n")
    (line,) = applied("env", "CC=clang-22", "FLAGS=-DA -DB", "make", "-j2")
    assert "env clang-22 -DA -DB -c a.c" in run(line)
    assert applied("env", "CC=clang-22", "make") == [f"make -B 'CC={LAUNCHING} clang-22'"]


def test_a_compiler_of_a_language_that_the_build_does_not_compile_stays_as_it_links() -> None:
    Path("configure").touch()
    Path("config.status").write_text("ac_cs_config=\"'CXX=clang++-22' 'CC=gcc'\"\n")
    assert applied("env", "CC=clang-22", "CXX=clang++-22", "make")[0].startswith("env CXX=clang++-22 make -B 'CC=")
    line, configured = applied("make", "CC=clang-22", "CXX=clang++-22")
    assert line == f"make -B CXX=clang++-22 'CC={LAUNCHING} clang-22'"
    assert configured == f"or: ./configure CXX=clang++-22 'CC={LAUNCHING} clang-22'"


def test_a_build_by_an_unknown_program_is_to_be_cleaned_and_told_its_compiler_unless_it_took_cc() -> None:
    cleaned, line = applied("env", "CC=ccache clang-22", "./build.sh", "all")
    assert cleaned == "# clean first: build.sh may not compile sources again that have not changed"
    assert line == f"env 'CC={LAUNCHING} clang-22' ./build.sh all"
    told, *others = applied("env", "CC=gcc", "./build.sh", "all")
    assert told.startswith("# CC did not name this build's compiler: if build.sh does not take it from there, write it")
    assert others == [cleaned, line]


def test_a_compiler_that_an_unknown_program_is_told_in_its_words_is_replaced_there_with_the_flags_behind_it() -> None:
    _, line = applied("luarocks", "make", "CC=clang-22 -m32", "CFLAGS=-Oz")
    assert line == f"luarocks make 'CC={LAUNCHING} clang-22 -m32' CFLAGS=-Oz"
    assert applied("scons", "CC=clang-22")[-1] == f"scons 'CC={LAUNCHING} clang-22'"
    _, line = applied("env", "CC=clang-22 -m32", "./build.sh")
    assert line == f"env 'CC={LAUNCHING} clang-22 -m32' ./build.sh"


def test_a_project_with_meson_and_a_configure_script_is_made_by_the_one_that_made_its_makefile() -> None:
    for name in ("meson.build", "configure", "config.log"):
        Path(name).touch()
    assert applied("make")[:2] == ["make clean", f"make 'CC={LAUNCHING} clang-22'"]


def test_a_store_is_named_where_a_source_is_in_a_repository_within_the_project() -> None:
    Path("part/.git").mkdir(parents=True)
    Path("part/b.c").touch()
    *_, line = applied("./build.sh", sources=[Path("a.c"), Path("part/b.c")])
    assert f"--decisions {Path.cwd()}/policybridge.decisions --" in line


@pytest.mark.parametrize(
    "written", ["", '{"directories": {"sou', '{"directories": 3}', '[{"name": "c_args", "value"', "[3]"]
)
def test_a_meson_folder_with_half_of_its_files_still_gets_lines(written: str) -> None:
    information = Path("build", "meson-info")
    information.mkdir(parents=True)
    for name in ("meson-info.json", "intro-buildoptions.json"):
        (information / name).write_text(written)
    setup, build = applied("ninja", "-C", "build")
    assert setup.endswith(" meson setup tuned")
    assert build == "ninja -C tuned"
