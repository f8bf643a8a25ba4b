"""What configure scripts, CMake and others try: no line of ours is taken for the compiler's refusal."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import RunningServer, command, running_server
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

_SOURCE = """
int f(int);
static int g(int x) { return f(x); }
int h(int x) { return g(x) + g(x + 1); }
int f(int x) { return x; }
int main(void) { return h(0); }
"""
_NAMES = ("conftest.c", "conftest-1.c", "conftest2.c", "conftest__.c", "conftstm.c", "src.c", "ztest42.c", "gcctest.c")

_NO_STATS = "/nowhere/stats.json"

_TRIALS = (
    "-O2 -c conftest.c",
    "-O2 -c conftest2.c -v",
    "-O2 -c conftest-1.c -o made.o",
    "-O2 -c conftest__.c",
    "-O2 -c conftstm.c",
    "-O2 -c ztest42.c",
    "-O2 -o gcctest gcctest.c",
    "-O2 -o conftest conftest.c",
    "-O2 -o conftest conftest.o",
    "-O2 -x c -c - -o conftest.o",
    "-O2 -x c -c src.c -o /dev/null",
    "-O2 -x c - -o /dev/null",
    "-O2 -x c -S /dev/null -o made.s",
    "-O2 -c src.c -o CMakeFiles/cmTC_1a2b3.dir/src.c.o",
    "-O2 -c src.c -o meson-private/output.obj",
    "-O2 -c src.c -o conf_check_0/made.o",
    "-O2 -flto --ld-path=ld.lld-22 -o conftest conftest.c",
    "-O2 -flto=thin --ld-path=ld.lld-22 -o conftest conftest.c",
    "-O2 -flto --ld-path=ld.bfd -o conftest conftest.c",
)

_CONFIGURE = """
AC_INIT([trial], [1])
AC_PROG_CC
AC_LANG_WERROR
LDFLAGS=--ld-path=ld.lld-22
for flag in -O2 -O3 "-O2 -flto" -fno-such-flag; do
  CFLAGS="$flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
      #include <stdio.h>
      static int g(int x) { return getchar() + x; }]], [[return g(1) + g(2);]])],
      [AC_MSG_NOTICE([compiles with $flag])])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[
      #include <stdio.h>
      static int g(int x) { return getchar() + x; }]], [[return g(1) + g(2);]])],
      [AC_MSG_NOTICE([links with $flag])])
done
"""

_CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(trial C)
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckFunctionExists)
foreach(flag -O2 -Os -ffunction-sections -fno-such-flag)
  check_c_compiler_flag(${flag} accepts_${flag})
  message(STATUS "told: ${flag} ${accepts_${flag}}")
endforeach()
set(CMAKE_REQUIRED_FLAGS -O2)
check_c_source_compiles("static int g(int x) { return x * x; } int main(int n, char **a) { return g(n) + g(n + 1); }"
  compiles FAIL_REGEX "decision|policy")
check_function_exists(getchar has_getchar)
message(STATUS "told: ${compiles} ${has_getchar}")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "small", answering("0"), '[scope]\nlevel = ["Oz"]')
    with running_server(repository, tmp_path_factory.mktemp("server")) as running:
        yield running


class Asked:
    """A policy that decides nothing, or a store that cannot be read, with statistics that cannot be written.

    Args:
        words: who decides, for the launcher and for Python.
        settings: the same for the plugin.

    """

    def __init__(self, plugin: Path, launcher: str, words: tuple[str, ...], settings: dict[str, str]) -> None:
        self.compiler = need("clang-22")
        self._plugin, self._launcher, self._words, self._settings = plugin, launcher, words, settings

    def start(self, way: str) -> tuple[list[str], dict[str, str]]:
        """Give the words in place of the compiler's name, and the environment."""
        environment = {**os.environ, "POLICYBRIDGE_PLUGINS": str(self._plugin.parent), "CCACHE_DISABLE": "1"}
        if way == "plugin":
            settings = {**self._settings, "PHASES": "compile,pre-link,link", "STATS": _NO_STATS}
            named = {f"POLICYBRIDGE_{name}": value for name, value in settings.items()}
            return [self.compiler, f"-fpass-plugin={self._plugin}"], {**environment, **named}
        environment["POLICYBRIDGE_LAUNCHER"] = ""
        run = [self._launcher] if way == "launcher" else command("run")
        return [*run, *self._words, "--stats", _NO_STATS, "--", self.compiler], environment


@pytest.fixture(params=["out of scope", "no server", "no store"])
def asked(
    request: pytest.FixtureRequest, native: Target, launcher: str, server: RunningServer, tmp_path: Path
) -> Asked:
    plugin = built_plugin(native, "inliner", "22")
    # CMake's expressions would find this path: `unknown .*option`.
    nothing = str(tmp_path / "an unknown compiler option")
    if request.param == "no store":
        return Asked(plugin, launcher, ("--decisions", nothing), {"DECISIONS": nothing})
    address = server.socket if request.param == "out of scope" else f"socket:{nothing}"
    words = ("--policy", "small", "--server", address)
    return Asked(plugin, launcher, words, {"SERVER": address, "POLICY": "small"})


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for part in ("CMakeFiles/cmTC_1a2b3.dir", "meson-private", "conf_check_0"):
        (folder / part).mkdir(parents=True)
    for name in _NAMES:
        (folder / name).write_text(_SOURCE)
    subprocess.run([need("clang-22"), "-c", "conftest.c"], cwd=folder, check=True)
    return folder


def said(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    done = subprocess.run(
        words, cwd=folder, env=environment, input=_SOURCE, capture_output=True, text=True, check=False
    )
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("policybridge")]


@pytest.mark.parametrize("way", ["plugin", "launcher", "python"])
def test_no_line_is_told_of_what_tries_the_compiler(asked: Asked, sources: Path, way: str) -> None:
    for program in ("ld.lld-22", "ld.bfd"):
        need(program)
    start, environment = asked.start(way)
    trials = _TRIALS[:: 3 if way == "python" else 1]
    told = {trial: said([*start, *trial.split()], sources, environment) for trial in trials}
    assert told == dict.fromkeys(trials, (0, []))


@pytest.mark.parametrize("way", ["plugin", "launcher", "python"])
def test_the_line_is_told_of_the_same_source_by_another_name(asked: Asked, sources: Path, way: str) -> None:
    (sources / "conftest.c").rename(sources / "contest.c")
    start, environment = asked.start(way)
    status, lines = said([*start, "-O2", "-c", "contest.c"], sources, environment)
    assert status == 0
    assert any("decisions are the compiler's own" in line for line in lines)


class Configuration(NamedTuple):
    """The command that configures a project; its lines with ``sign`` tell the findings."""

    words: tuple[str, ...]
    sign: str

    def answers(self, folder: Path, compiler: list[str], environment: Mapping[str, str]) -> list[str]:
        """Configure in a new folder; give the lines."""
        return _answers(folder, compiler, environment, self.sign, self.words)

    def plain(self, folder: Path) -> list[str]:
        """Give the lines for the compiler alone."""
        return self.answers(folder, [need("clang-22")], {**os.environ, "CCACHE_DISABLE": "1"})


def _answers(
    folder: Path, compiler: list[str], environment: Mapping[str, str], sign: str, words: tuple[str, ...]
) -> list[str]:
    folder.mkdir()
    script = folder / "cc"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(compiler)} "$@"\n')
    script.chmod(0o755)
    environment = {**environment, "CC": str(script)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if sign in line]


@pytest.fixture(scope="module")
def autoconfs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Configuration, list[str]]:
    """Give a configure script, and its findings with the compiler alone."""
    need("ld.lld-22")
    folder = tmp_path_factory.mktemp("autoconf")
    (folder / "configure.ac").write_text(_CONFIGURE)
    subprocess.run([need("autoconf")], cwd=folder, check=True, capture_output=True)
    script = Configuration((str(folder / "configure"),), "s with ")
    return script, script.plain(folder / "plain")


@pytest.fixture(scope="module")
def cmakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Configuration, list[str]]:
    """Give a project of CMake's, and its findings with the compiler alone."""
    folder = tmp_path_factory.mktemp("cmake")
    (folder / "CMakeLists.txt").write_text(_CMAKE)
    project = Configuration(("cmake", "-S", str(folder), "-B", "build"), "told: ")
    return project, project.plain(folder / "plain")


@pytest.mark.parametrize("way", ["plugin", "launcher"])
def test_a_configure_script_of_autoconfs_for_which_warnings_are_errors_accepts_the_same_flags(
    asked: Asked, autoconfs: tuple[Configuration, list[str]], tmp_path: Path, way: str
) -> None:
    script, plain = autoconfs
    assert len(plain) == 6
    assert script.answers(tmp_path / "asked", *asked.start(way)) == plain


@pytest.mark.parametrize("way", ["plugin", "launcher"])
def test_a_project_of_cmakes_finds_the_same_flags_and_functions(
    asked: Asked, cmakes: tuple[Configuration, list[str]], tmp_path: Path, way: str
) -> None:
    project, plain = cmakes
    assert len(plain) == 5
    assert project.answers(tmp_path / "asked", *asked.start(way)) == plain
