"""``policybridge autotune`` takes the build's own compiler, and says at the end how the store is applied."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_core.version import version
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.lto import Mode
from policybridge_train.corpus.notes import BuildCommand, build_command
from policybridge_train.tuning.applying import Ending
from policybridge_train.tuning.compilers import BuildCompilers
from policybridge_train.tuning.tuned_compiler import TunedCompiler
from tests.conftest import command
from tests.native.conftest import built
from tests.native.llvm.plugins import built_plugin, need
from tests.training.tuning.boxes import boxes


@pytest.fixture(autouse=True)
def without_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()


def compilers(*commands: Sequence[str]) -> BuildCompilers:
    return BuildCompilers.of([BuildCommand(Path.cwd(), words[0], tuple(words[1:])) for words in commands])


def applied(
    build: Sequence[str], used: BuildCompilers, store: str = "policybridge.decisions", lto: Mode | None = None
) -> list[str]:
    Path(store).write_text("policybridge-decisions 1\n")
    return list(Ending(TunedCompiler(Path(store), Compiler.find("clang-22"), used, lto=lto), build).applying())


def path(name: str) -> str:
    return str(Compiler.find(need(name)).start[0])


def test_the_clang_that_compiled_most_is_chosen_by_its_name_for_c() -> None:
    used = compilers(
        [path("clang-22"), "-O2", "-c", "a.c"],
        [path("clang++-19"), "-Oz", "-c", "b.cpp"],
        [path("clang++-19"), "-Oz", "-c", "c.cpp"],
        [path("clang-19"), "main.o", "-o", "program"],
    )
    assert used.chosen().name == "clang-19"
    assert [each.name for each in used.clangs] == ["clang-19", "clang-22"]
    assert (used.has_c, used.has_cxx, used.is_optimised) == (True, True, True)


def test_a_clang_behind_a_launcher_is_the_one_of_its_name_on_path() -> None:
    folder, name = Path.cwd(), need("clang-22")
    noted = [build_command(folder, words) for words in (["ccache", name, "-Oz", "-c", "a.c"], [name, "-c", "b.c"])]
    assert BuildCompilers.of([command for command in noted if command]).chosen().name == name


def test_what_a_build_system_compiles_to_try_the_compiler_counts_for_nothing() -> None:
    trial = [path("clang++-22"), "-O0", "-flto", "-c", "/usr/share/cmake/Modules/CMakeCXXCompilerABI.cpp"]
    used = compilers([path("clang-19"), "-Oz", "-c", "a.c"], trial, trial)
    assert used.chosen().name == "clang-19"
    assert (used.has_c, used.has_cxx, used.links.total(), used.folders) == (True, False, 1, {Path.cwd()})


def test_a_build_without_clang_has_none_to_choose() -> None:
    used = compilers([need("gcc"), "-O2", "-c", "a.c"])
    with pytest.raises(PreconditionError, match=r"gcc, and decisions apply to clang alone.*--compiler clang-22"):
        used.chosen()


@pytest.mark.parametrize(("levels", "optimises"), [("-O0", False), ("-O2 -O0", False), ("-O0 -Os", True)])
def test_the_last_level_of_a_command_counts(levels: str, optimises: bool) -> None:
    assert compilers(["clang", *levels.split(), "-c", "a.c"], ["clang", "-c", "b.c"]).is_optimised is optimises


def test_a_make_build_is_repeated_with_the_launcher_before_its_compilers() -> None:
    used = compilers(["clang-22", "-Oz", "-c", "a.c"], ["clang++-22", "-Oz", "-c", "b.cpp"])
    launching = "policybridge run -- clang"
    lines = applied(["make", "-j8", "CC=clang-22"], used)
    assert lines == [f"make -B -j8 'CC={launching}-22' 'CXX={launching}++-22'"]


def test_a_cmake_build_is_configured_anew_with_the_launcher() -> None:
    Path("CMakeLists.txt").touch()
    used = compilers(["clang++-22", "-Oz", "-c", "b.cpp"])
    options = "-DCMAKE_CXX_COMPILER=clang++-22 '-DCMAKE_CXX_COMPILER_LAUNCHER=policybridge;run;--'"
    assert applied(["cmake", "--build", "build"], used) == [f"cmake -S . -B tuned {options}", "cmake --build tuned"]


@pytest.mark.parametrize("folder", ["build", "its build"])
@pytest.mark.parametrize("build", ["cmake --build", "ninja -C"])
def test_a_cmake_folder_is_configured_again_with_the_launcher_and_keeps_its_options(folder: str, build: str) -> None:
    source = (
        'project(p C)\noption(MORE "more" OFF)\nadd_library(p a.c)\ntarget_compile_definitions(p PRIVATE M=${MORE})\n'
    )
    Path("CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\n{source}")
    Path("a.c").write_text("int f(void) { return 0; }\n")
    given = ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DMORE=ON", f"-DCMAKE_C_COMPILER={need('clang-22')}"]
    subprocess.run([need("cmake"), "-S", ".", "-B", folder, "-G", "Ninja", *given], check=True, capture_output=True)
    used = compilers([path("clang-22"), "-Os", "-c", "a.c"])
    configure, made = applied([*build.split(), folder], used)
    assert configure.count("policybridge;run;--") == 1
    subprocess.run(configure.replace("policybridge;run;--", "env"), shell=True, check=True, capture_output=True)
    said = subprocess.run(f"{made} -v", shell=True, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"env {path('clang-22')} -DM=ON .*-Os", said)


def test_a_cmake_folder_of_another_compiler_stays_and_a_new_one_has_its_level_and_variables() -> None:
    declared = 'option(MORE "more" OFF)\noption(RARE "rare" OFF)\nmark_as_advanced(RARE)\n'
    Path("CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(p C)\n{declared}add_library(p a.c)\n"
    )
    Path("a.c").write_text("int f(void) { return 0; }\n")
    given = ["-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_C_FLAGS=-DA -DB", "-DCMAKE_UNITY_BUILD=ON", "-DUSE=a b"]
    given += ["-DMORE=ON"]
    # Of a language that the project has not; CMake declares no type of these either.
    compiler = ["-DCMAKE_CXX_COMPILER=g++", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    subprocess.run([need("cmake"), "-S", ".", "-B", "build", *given, *compiler], check=True, capture_output=True)
    configure, _ = applied(["cmake", "--build", "build"], compilers(["gcc", "-Os", "-c", "a.c"]))
    assert configure.startswith(
        "cmake -S . -B tuned -DCMAKE_BUILD_TYPE=MinSizeRel '-DCMAKE_C_FLAGS=-DA -DB' "
        "-DCMAKE_UNITY_BUILD=ON -DMORE=ON '-DUSE=a b' -DCMAKE_C_"
    )
    assert not re.search(r"g\+\+|ccache", configure)


def test_a_store_of_another_name_is_named() -> None:
    store = Path("tuned.db").absolute()
    *_, line = applied(["./build.sh"], compilers(["clang-22", "-Oz", "-c", "a.c"]), str(store))
    assert line == f"env 'CC=policybridge run --decisions {store} -- clang-22' ./build.sh"


@pytest.mark.parametrize(
    "given",
    [
        "setup.py build_ext --inplace",
        "setup.py build",
        "setup.py bdist_wheel",
        "-m pip wheel -v --no-build-isolation --no-deps .",
    ],
)
def test_an_extension_of_python_s_is_compiled_again_though_it_is_up_to_date(given: str) -> None:
    Path("a.c").write_text("int PyInit_a(void) { return 0; }\n")
    Path("setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "setup(name='a', version='1', py_modules=[], ext_modules=[Extension('a', ['a.c'])])\n"
    )
    build = [sys.executable, *given.split()]
    environment = {**os.environ, "CC": need("clang-22")}
    subprocess.run(build, env=environment, check=True, capture_output=True)
    lines = "\n".join(applied(build, compilers([path("clang-22"), "-O2", "-c", "a.c"])))
    assert "policybridge run -- " in lines
    again = lines.replace("policybridge run -- ", "env ")
    ended = subprocess.run(again, shell=True, check=True, capture_output=True, text=True)
    assert re.search(r"env \S*clang-22 .*-c a\.c", ended.stdout + ended.stderr)


@pytest.mark.parametrize(("lto", "flag"), [("full", "-flto"), ("thin", "-flto=thin -flto-jobs=1")])
def test_a_store_for_link_time_is_applied_by_builds_with_that_lto(lto: Mode, flag: str) -> None:
    used = compilers(["clang-22", "-Oz", "-c", "a.c"])
    told, line = applied(["make"], used, lto=lto)
    assert told.startswith("# policybridge-run")
    words = f"{flag} -fuse-ld=lld -Wno-unused-command-line-argument"
    assert line == f"make -B 'CC=policybridge run -- clang-22 {words}'"

    Path("CMakeLists.txt").write_text("project(p C)\nadd_executable(p a.c)\n")
    Path("a.c").write_text("int main(void) { return 0; }\n")
    _, configure, build = applied(["cmake", "--build", "build"], used, lto=lto)
    assert configure.count("policybridge;run;--") == 2
    subprocess.run(configure.replace("policybridge;run;--", "env"), shell=True, check=True, capture_output=True)
    said = subprocess.run([*build.split(), "-v"], capture_output=True, text=True, check=True).stdout
    assert said.count(f"env {path('clang-22')} {words}") == 2


def test_a_new_cmake_folder_has_the_flags_of_the_type_and_of_links_and_its_linker_is_lld() -> None:
    need("ld.lld-22")
    Path("CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_executable(p a.c)\n")
    Path("a.c").write_text("int main(void) { return 0; }\n")
    given = [
        "-DCMAKE_BUILD_TYPE=MinSizeRel",
        "-DCMAKE_C_FLAGS_MINSIZEREL=-Oz -DN",
        f"-DCMAKE_C_COMPILER={path('clang-22')}",
    ]
    given.append("-DCMAKE_EXE_LINKER_FLAGS=-Wl,--gc-sections --ld-path=/nowhere -fuse-ld=bfd -Wl,-O1")
    subprocess.run(
        [need("cmake"), "-S", ".", "-B", "build", *given, "-DCMAKE_C_COMPILER_WORKS=1"], check=True, capture_output=True
    )
    _, configure, build = applied(
        ["cmake", "--build", "build"], compilers(["clang-22", "-Oz", "-c", "a.c"]), lto="full"
    )
    assert "RELEASE" not in configure
    subprocess.run(configure.replace("policybridge;run;--", "env"), shell=True, check=True, capture_output=True)
    said = subprocess.run([*build.split(), "-v"], capture_output=True, text=True, check=True).stdout
    assert said.count(" -Oz -DN ") == 2
    assert " -Wl,--gc-sections -Wl,-O1 " in said


def test_meson_archives_bitcode_by_the_archiver_of_the_compiler_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("llvm-ar-22")
    older = tmp_path / "older" / "llvm-ar"
    older.parent.mkdir()
    older.write_text('#!/bin/sh\n[ "$1" = --version ] && echo LLVM version 14.0.6\n')
    older.chmod(0o755)
    monkeypatch.setenv("PATH", f"{older.parent}:{os.environ['PATH']}")
    Path("meson.build").write_text("project('p', 'c')\nstatic_library('p', 'a.c')\n")
    Path("a.c").write_text("int f(void) { return 0; }\n")
    used = compilers(["clang-22", "-Oz", "-c", "a.c"])
    assert "AR=" not in "".join(applied([need("meson"), "compile"], used))
    _, *lines = applied(["meson", "compile"], used, lto="thin")
    for line in lines:
        subprocess.run(line.replace("policybridge run --", "env"), shell=True, check=True, capture_output=True)
    assert Path("tuned/libp.a").read_bytes().startswith(b"!<")
    monkeypatch.setenv("AR", "gcc-ar")
    assert "AR=" not in "".join(applied(["meson", "compile"], used, lto="thin"))


_CONFIGURE = """#!/bin/sh
for word; do case $word in CC=*) CC=${word#CC=};; AR=*) AR=${word#AR=};; esac; done
printf "$CC -shared \\"\\$@\\" && $AR rcs libp.a a.o\\n" > libtool
printf "ac_cs_config=\\"'AR=$AR' 'CC=$CC'\\"\\n" > config.status
printf "CC = $CC\\nlibp.so: a.o\\n\\tsh -x ./libtool -o libp.so a.o\\n" > Makefile
printf "a.o: a.c\\n\\t\\$(CC) -Oz -fPIC -c a.c\\nclean:\\n\\trm a.o libp.so\\n" >> Makefile
touch config.log
"""
"""Writes a script that links by the compiler of the configuration, as libtool's does."""


def test_a_folder_with_libtool_is_configured_again_because_it_links_by_the_compiler_of_its_configuration() -> None:
    need("ld.lld-22")
    Path("configure").write_text(_CONFIGURE)
    Path("configure").chmod(0o755)
    Path("a.c").write_text("int f(void) { return 0; }\n")
    subprocess.run(["./configure", "CC=clang-22", f"AR={need('llvm-ar-22')}"], check=True)
    subprocess.run(["make"], check=True, capture_output=True)
    used = compilers(["clang-22", "-Oz", "-c", "a.c"])
    _, *lines = applied(["make", "-j2"], used, lto="full")
    assert [line.split()[0] for line in lines] == ["./configure", "make", "make"]
    assert [word.split("=")[0] for word in shlex.split(lines[0])[1:]] == ["AR", "NM", "RANLIB", "CC"]
    said = "".join(
        subprocess.run(
            line.replace("policybridge run --", "env"), shell=True, check=True, capture_output=True, text=True
        ).stderr
        for line in lines
    )
    words = "-flto -fuse-ld=lld -Wno-unused-command-line-argument"
    assert f"+ env clang-22 {words} -shared -o libp.so a.o" in said

    told = applied(["make", "-C", str(Path.cwd())], used, lto="full")[1]
    assert told.startswith("# libtool links by the compiler of its configure script, so run that again, with AR=")
    assert told.endswith(f" 'CC=policybridge run -- clang-22 {words}'")
    assert [line[:4] for line in applied(["make"], used)] == ["make", "make", "or: "]


def tune(*words: str, source: str = boxes("a")) -> "subprocess.CompletedProcess[str]":
    Path("one.c").write_text(source)
    Path("Makefile").write_text("CFLAGS = -Oz -w\none.o: one.c\n\t$(CC) $(CFLAGS) -c one.c -o one.o\n")
    environment = {**os.environ, "POLICYBRIDGE_PLUGINS": ""}
    words = tuple(command("autotune", "--budget", "3", "--decide", "inline", *words))
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


def test_a_build_by_clang_is_tuned_with_that_clang_and_the_lines_apply_the_store() -> None:
    done = tune("--json", "--", "make", f"CC={need('clang-19')}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "clang version 19." in told["compiler"]
    assert (told["modules"], told["store"], told["failures"]) == (1, "policybridge.decisions", [])
    assert told["text"]["after"] < told["text"]["before"]
    before = Path("one.o").read_bytes()
    # The environment's own command, as in a shell where it is activated.
    found = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(told["apply"][0], shell=True, check=True, capture_output=True, env=found)
    assert Path("one.o").read_bytes() != before


def test_the_same_command_goes_on_also_where_the_build_is_up_to_date() -> None:
    again = ("--json", "--", "make", f"CC={need('clang-22')}")
    first = json.loads(tune(*again).stdout)
    words = command("autotune", "--budget", "6", "--decide", "inline", *again)
    environment = {**os.environ, "POLICYBRIDGE_PLUGINS": ""}
    gone_on = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert "the build compiled nothing; the modules of its last run are tuned\n" in gone_on.stderr
    told = json.loads(gone_on.stdout)
    assert told["compiles"] > first["compiles"]
    assert (told["text"]["before"], told["apply"]) == (first["text"]["before"], first["apply"])
    # Another build that compiles nothing is none of it, and a damaged file holds none.
    other = subprocess.run(command("autotune", "--", "true"), capture_output=True, text=True, check=False)
    assert (other.returncode, "the build compiled nothing that was seen" in other.stderr) == (2, True)
    kept = Path("policybridge.decisions.work", "build.json")
    build, _ = json.loads(kept.read_text())
    lies = ("5", json.dumps([build, 5]), json.dumps([build, [["/", "cc", "-c", {}]]]))
    for damaged in ('[["/"', "[" * 100_000, *lies):
        kept.write_text(damaged)
        ended = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert (ended.returncode, "the build compiled nothing that was seen" in ended.stderr) == (2, True)


def test_a_program_that_is_linked_in_a_folder_of_another_name_each_time_is_one() -> None:
    build = 'made=$(mktemp -d "$PWD/XXXXXX") && clang-22 -Oz -c one.c -o $made/one.o && '
    linking = "clang-22 -shared $made/one.o -o $made/one.so && rm -r $made"
    for _ in range(2):
        told = json.loads(tune("--json", "--linked", "--", "sh", "-c", build + linking).stdout)
        assert (told["modules"], told["programs"]) == (1, 1)


def test_the_result_as_json_is_written_in_a_folder_whose_name_is_no_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"b\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    done = tune("--json", "--store", "other.db", "--", "make", f"CC={need('clang-22')}")
    assert (done.returncode, "/b\ufffd/other.db" in json.loads(done.stdout or "{}").get("apply", [""])[0]) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "make", "CC=gcc"), "decisions apply to clang alone"),
        (("--", "make", "CC=clang-19", "CFLAGS="), "the build does not optimise (-O0), so there is nothing to decide"),
    ],
)
def test_a_build_with_nothing_to_decide_is_told_the_cure(words: tuple[str, ...], said: str) -> None:
    done = tune(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not Path("policybridge.decisions").exists()


@pytest.mark.parametrize(
    ("flags", "mode"), [("-flto=thin", "thin"), ("-fno-lto -flto=auto", "full"), ("-flto", "full")]
)
def test_a_build_with_lto_of_its_own_is_told_the_option_that_searches_at_link_time(flags: str, mode: str) -> None:
    done = tune("--", "make", f"CC={need('clang-22')}", f"CFLAGS=-Oz -w {flags}")
    assert done.returncode == 0, done.stderr
    told = f"1 of 1 sources have -flto, which leaves decisions to link time: --lto {mode} searches for them"
    assert f"policybridge autotune: {told}\n" in done.stderr
    assert f"{told}\napply policybridge.decisions:\n" in done.stdout


@pytest.mark.parametrize(("flags", "asked", "other"), [("-flto=thin", "full", "thin"), ("-flto=auto", "thin", "full")])
def test_a_build_with_another_lto_of_its_own_is_told_that_it_comes_behind_that_of_the_lines(
    flags: str, asked: Mode, other: Mode
) -> None:
    used = compilers(["clang-22", "-Oz", flags, "-c", "a.c"], ["clang-22", "-Oz", "-c", "b.c"])
    (note,) = used.notes(lto=asked)
    assert note.startswith("1 of 2 sources have -flto")
    assert note.endswith(f"a store of --lto {asked} changes nothing: give --lto {other}, or build without it")
    assert not [*used.notes(lto=other)]


def test_a_build_with_a_profile_of_gccs_is_told_that_it_is_searched_without_it() -> None:
    words = ["-Oz", "-c"]
    used = compilers(
        ["gcc", *words, "-fprofile-use=p", "a.c"],
        ["clang-22", *words, "-fprofile-use", "b.c"],
        ["gcc", *words, "-fauto-profile", "-fno-auto-profile", "c.c"],
    )
    (note,) = used.notes(lto="full")
    assert note == "1 of 3 sources are compiled with a profile of GCC's, and searched without it"
    assert note in Ending(TunedCompiler(Path("x.db"), Compiler.find("clang-22"), used), ["make"]).lines(2, 1, 1)


_LOOPS = """
static int sum(int n) { int s = 0; for (int i = 0; i < n; i++) s += i % 7 ? i : n; return s; }
int first(int n) { return sum(n) + sum(n / 2); }
int second(int n) { int s = n; for (int i = 0; i < n; i++) s ^= i * 3; return s + sum(n) * 31; }
"""


def write_profile(called: str, generate: str) -> Path:
    Path("run.c").write_text(f"int {called}(int n); int main(void) {{ return {called}(10000) == 5; }}")
    Path("one.c").write_text(_LOOPS)
    program, raw, profile = Path("run").absolute(), Path(f"{called}.profraw"), Path("folder", "p.profdata")
    profile.parent.mkdir(exist_ok=True)
    subprocess.run([need("clang-22"), "-O2", generate, "run.c", "one.c", "-o", program], check=True)
    subprocess.run([program], check=True, env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    subprocess.run([need("llvm-profdata-22"), "merge", "-o", profile, raw], check=True)
    return profile


def text_of(file: str) -> int:
    words = [need("llvm-size-22"), "-A", file]
    rows = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    loaded = (".text", ".rodata", ".eh_frame")
    return sum(int(row.split()[1]) for row in rows if row.startswith(loaded))


@pytest.mark.parametrize(
    ("generate", "use"), [("-fprofile-generate", "-fprofile-use"), ("-fprofile-instr-generate", "-fprofile-instr-use")]
)
def test_a_build_with_a_profile_is_searched_with_it_and_anew_with_another(generate: str, use: str) -> None:
    befores, plugin = [], built_plugin(built, "inliner", "22")
    search = ("--plugins", str(plugin.parent), "--decide", "inline,passes", "--budget", "8", "--json")
    for called in ("first", "second"):
        flags = f"-O2 -w {use}={write_profile(called, generate)}"
        done = tune(*search, "--", "make", "-B", f"CC={need('clang-22')}", f"CFLAGS={flags}", source=_LOOPS)
        assert done.returncode == 0, done.stderr
        assert "without" not in done.stderr
        told = json.loads(done.stdout)
        assert told["compiles"] > 0
        assert told["text"]["before"] == text_of("one.o")
        befores.append(told["text"]["before"])
        again = ["make", "-B", f"CC=clang-22 -fpass-plugin={plugin}", f"CFLAGS={flags}"]
        subprocess.run(again, check=True, capture_output=True)
        assert told["text"]["after"] == text_of("one.o") < told["text"]["before"]
    assert befores[0] != befores[1]


def test_a_profile_that_is_gone_is_named() -> None:
    profile = write_profile("first", "-fprofile-generate")
    Path("build.sh").write_text(f'make "$@" && rm -r {profile.parent}\n')
    flags = f"-O2 -w -fprofile-use={profile}"
    done = tune("--", "sh", "build.sh", f"CC={need('clang-22')}", f"CFLAGS={flags}")
    assert done.returncode != 0
    assert f"Error in reading profile {profile}" in done.stderr


def test_sources_without_lto_and_phases_before_the_link_are_told_nothing_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["clang-22", "-Oz", "-flto", "-c", "a.c"]
    (note,) = compilers(words, ["clang-22", "-Oz", "-c", "b.c"]).notes(lto=None, speed=True)
    assert note.endswith("link time: a store does not change these: build without it")
    assert not compilers([*words, "-fno-lto"]).left_to_link
    assert compilers(words).left_to_link
    monkeypatch.setenv("POLICYBRIDGE_PHASES", "compile,pre-link")
    assert not compilers(words).left_to_link


def test_another_compiler_that_is_asked_for_is_told_beside_the_builds_own() -> None:
    done = tune("--compiler", need("clang-22"), "--", "make", "CC=gcc")
    assert done.returncode == 0
    assert "/gcc; the store applies to clang-22 alone\n" in done.stdout
    assert "\n  make -B 'CC=policybridge run -- clang-22'\n" in done.stdout


def test_a_launcher_is_called_by_its_name_where_path_has_this_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own" / "policybridge-run", tmp_path / "other" / "policybridge-run"
    for launcher, told in ((own, version()), (other, "0.0.1")):
        launcher.parent.mkdir()
        launcher.write_text(f"#!/bin/sh\necho 'policybridge-run {told}'\n")
        launcher.chmod(0o755)
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", str(own))
    build, used = ["make"], compilers([path("clang-22"), "-O2", "-c", "a.c"])
    for first, name in ((own, "policybridge-run"), (other, str(own))):
        monkeypatch.setenv("PATH", str(first.parent), prepend=":")
        assert shlex.split(applied(build, used)[0])[-1] == f"CC={name} -- clang-22"
