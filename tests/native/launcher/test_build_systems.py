"""CMake, Meson, Make and autotools build with a store, by the lines of docs/install.md."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Runner
from tests.docs.shell import opened_shell
from tests.native.conftest import Target, build_grpc, missing
from tests.native.llvm.plugins import built_plugin, need

MAJOR = "22"
PAGE = ROOT / "docs" / "install.md"
STORE = "policybridge.decisions"
SHARED = "Tune your own build"
EMPTY = "policybridge-decisions 1\n"

CONFIGURE = """AC_INIT([words], [1])
AM_INIT_AUTOMAKE([foreign])
AC_PROG_CXX
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
_RULES_OF_CC = """cc_library cc_binary cc_import cc_test cc_toolchain cc_toolchain_suite fdo_prefetch_hints fdo_profile
objc_import objc_library"""
_RULES_OF_JAVA = """java_binary java_library java_import java_test java_plugin java_runtime java_toolchain
java_package_configuration java_lite_proto_library java_proto_library"""
AUTOMAKE = """bin_PROGRAMS = words
words_SOURCES = words.cpp
"""


@pytest.fixture(scope="module")
def prefix(native: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install what the packages policybridge-run and policybridge-llvm22 have."""
    need(f"clang++-{MAJOR}")
    folder = tmp_path_factory.mktemp("prefix")
    native("policybridge-run")
    build_grpc(native)
    built_plugin(native, "passes", MAJOR)
    build = built_plugin(native, "inliner", MAJOR).parents[1]
    for component in ("run", f"llvm{MAJOR}"):
        words = ["cmake", "--install", str(build), "--prefix", str(folder), "--component", component]
        subprocess.run(words, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def environment(prefix: Path) -> dict[str, str]:
    """Give the environment of a user with the installed parts."""
    path = os.pathsep.join([str(prefix / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    (plugins,) = (each.parent for each in prefix.rglob(f"policybridge-inliner-{MAJOR}.so"))
    left = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "POLICYBRIDGE_SERVER")}
    return {**left, "PATH": path, "POLICYBRIDGE_PLUGINS": str(plugins), "CCACHE_DISABLE": "1"}


def follow(folder: Path, environment: dict[str, str], *headings: str) -> None:
    """Run the blocks of the page's sections in a folder."""
    with opened_shell(folder, environment) as shell:
        runner = Runner(folder, shell, environment)
        for block in blocks(PAGE):
            if block.heading in headings and not block.reason.startswith("a fragment"):
                runner.run(block)


@pytest.fixture(scope="module")
def tuned(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do with the page's project what the section about CMake says."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / ".git").mkdir()
    follow(folder, environment, SHARED, "CMake")
    return folder


@pytest.fixture
def project(tuned: Path, tmp_path: Path) -> Path:
    """Give the project with its store, not built."""
    (tmp_path / ".git").mkdir()
    for name in ("words.cpp", "CMakeLists.txt", STORE):
        shutil.copy(tuned / name, tmp_path)
    return tmp_path


def run(folder: Path, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def text(program: Path) -> int:
    """Give the bytes of a program's text."""
    return int(run(program.parent, dict(os.environ), "size", program.name).splitlines()[1].split()[0])


@pytest.fixture(scope="module")
def plain(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Give the bytes of the program's text without decisions."""
    program = tmp_path_factory.mktemp("plain") / "words"
    words = (f"clang++-{MAJOR}", "-Oz", str(tuned / "words.cpp"), "-o", str(program))
    run(program.parent, dict(os.environ), *words)
    return text(program)


def test_cmake_builds_a_smaller_program(tuned: Path, plain: int) -> None:
    assert text(tuned / "build" / "words") < plain
    assert text(tuned / "other" / "words") == text(tuned / "build" / "words")


class System(NamedTuple):
    """A build system: its section, the program that must be installed, what is built, and how again."""

    heading: str
    tool: str
    program: str
    again: tuple[str, ...] = ()


SYSTEMS = (
    System("Meson", "meson", "mesonbuild/words", ("ninja", "-C", "mesonbuild")),
    System("Autotools", "autoreconf", "words", ("make",)),
    System("Make", "make", "words"),
)


@pytest.mark.parametrize("system", SYSTEMS, ids=[each.heading for each in SYSTEMS])
def test_another_build_system_builds_it_too_and_again_where_the_store_has_changed(
    project: Path, plain: int, environment: dict[str, str], system: System
) -> None:
    if shutil.which(system.tool) is None:
        missing(system.tool)
    if system.heading == "Autotools":
        (project / "configure.ac").write_text(CONFIGURE)
        (project / "Makefile.am").write_text(AUTOMAKE)
        run(project, environment, "autoreconf", "--install")
    follow(project, environment, system.heading)
    small = text(project / system.program)
    assert small < plain
    if system.again:
        (project / STORE).write_text(EMPTY)
        run(project, environment, *system.again)
        assert text(project / system.program) > small


def _write_rules(folder: Path, language: str, names: str) -> str:
    """Write a repository of rules that are Bazel's own, which it would download; give the option that names it."""
    package = folder / f"rules_{language}" / language
    package.mkdir(parents=True)
    for file in (package.parent / "WORKSPACE", package / "BUILD"):
        file.touch()
    (package / "defs.bzl").write_text("".join(f"{name} = native.{name}\n" for name in names.split()))
    return f"build --override_repository=rules_{language}={package.parent}\n"


def test_bazel_builds_it_in_its_sandbox_and_again_where_the_store_has_changed(
    project: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if shutil.which("bazel") is None:
        missing("bazel-bootstrap")
    rules = tmp_path_factory.mktemp("rules")
    options = f"startup --output_user_root={rules}/out --max_idle_secs=60\n"
    options += _write_rules(rules, "cc", _RULES_OF_CC) + _write_rules(rules, "java", _RULES_OF_JAVA)
    (project / ".bazelrc").write_text(options)
    (project / "WORKSPACE").touch()
    (block,) = (block for block in blocks(PAGE) if block.heading == "Bazel" and block.language == "text")
    (project / "BUILD").write_text(block.text)
    sizes = []
    try:
        for store in ((project / STORE).read_text(), EMPTY):
            (project / STORE).write_text(store)
            follow(project, environment, "Bazel")
            sizes.append(text(project / "bazel-bin" / "words"))
    finally:
        run(project, environment, "bazel", "shutdown")
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_a_target_of_cmake_asks_for_decisions_by_itself(
    project: Path, plain: int, environment: dict[str, str], generator: str
) -> None:
    with (project / "CMakeLists.txt").open("a") as file:
        file.write("find_package(PolicyBridge REQUIRED)\npolicybridge_decisions(words kept.decisions)\n")
    options = ("-DCMAKE_CXX_COMPILER=clang++-22", "-DCMAKE_CXX_FLAGS=-Oz", "-DCMAKE_CXX_COMPILER_LAUNCHER=env")
    configure = ("cmake", "-G", generator, "-S", ".", "-B", "build", *options)
    assert "there is no" in run(project, environment, *configure)
    run(project, environment, "cmake", "--build", "build")
    # Without a store in the project's own place the launcher is not even started.
    assert text(project / "build" / "words") == plain
    # As new as a search leaves it.
    (project / STORE).rename(project / "kept.decisions").touch()
    run(project, environment, *configure)
    assert "-- env" in run(project, environment, "cmake", "--build", "build", "--verbose")
    assert text(project / "build" / "words") < plain
    (project / "kept.decisions").write_text(EMPTY)
    run(project, environment, "cmake", "--build", "build")
    assert text(project / "build" / "words") == plain


_TARGETS = """
find_package(PolicyBridge REQUIRED)
add_library(parts STATIC)
target_sources(parts PRIVATE $<$<BOOL:ON>:${CMAKE_CURRENT_SOURCE_DIR}/words.cpp> readme.txt)
add_library(named INTERFACE)
foreach(target parts words named)
  policybridge_decisions(${target} "their decisions")
endforeach()
"""


@pytest.mark.parametrize("generator", ["Ninja", "Ninja Multi-Config", "Unix Makefiles"])
def test_targets_of_each_kind_are_compiled_with_a_store_and_in_a_folder_that_have_spaces_in_their_names(
    project: Path, plain: int, environment: dict[str, str], generator: str
) -> None:
    folder = project / "a project"
    folder.mkdir()
    (folder / "readme.txt").touch()
    shutil.copy(project / "words.cpp", folder)
    shutil.copy(project / STORE, folder / "their decisions")
    (folder / "their decisions").touch()
    (folder / "CMakeLists.txt").write_text((project / "CMakeLists.txt").read_text() + _TARGETS)
    options = ("-DCMAKE_CXX_COMPILER=clang++-22", "-DCMAKE_CXX_FLAGS=-Oz", "-DCMAKE_CXX_FLAGS_DEBUG=")
    run(folder, environment, "cmake", "-G", generator, "-S", ".", "-B", "build", *options)
    run(folder, environment, "cmake", "--build", "build")
    (program,) = (each for each in folder.rglob("words") if each.is_file())
    assert text(program) < plain


def test_a_target_that_another_compiler_compiles_is_built_without_decisions(
    project: Path, environment: dict[str, str]
) -> None:
    with (project / "CMakeLists.txt").open("a") as file:
        file.write("find_package(PolicyBridge REQUIRED)\npolicybridge_decisions(words)\n")
    said = run(project, environment, "cmake", "-S", ".", "-B", "build", "-DCMAKE_CXX_COMPILER=g++")
    assert "it is compiled by GNU" in said
    assert "policybridge-run" not in run(project, environment, "cmake", "--build", "build", "--verbose")


def test_the_toolchain_file_starts_the_project_s_own_launchers_behind_ours(
    project: Path, prefix: Path, environment: dict[str, str]
) -> None:
    (toolchain,) = prefix.rglob("PolicyBridgeToolchain.cmake")
    options = (f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DCMAKE_CXX_COMPILER=clang++-22")
    named = {**environment, "CMAKE_CXX_LINKER_LAUNCHER": "env;A=1"}
    for _ in range(2):
        run(project, named, "cmake", "-S", ".", "-B", "build", *options, "-DCMAKE_CXX_COMPILER_LAUNCHER=env")
    said = run(project, named, "cmake", "--build", "build", "--verbose")
    launcher = prefix / "bin" / "policybridge-run"
    assert said.count(f"{launcher} -- env {shutil.which('clang++-22')}") == 1
    assert said.count(f"{launcher} -- env A=1 {shutil.which('clang++-22')}") == 1


def test_a_launcher_that_was_moved_is_found_again_and_one_that_is_gone_is_said(
    project: Path, prefix: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with (project / "CMakeLists.txt").open("a") as file:
        file.write("find_package(PolicyBridge REQUIRED)\npolicybridge_decisions(words)\n")
    installed = tmp_path / "installed"
    shutil.copytree(prefix, installed)
    options = ("-DCMAKE_CXX_COMPILER=clang++-22", f"-DPOLICYBRIDGE_RUN={tmp_path / 'gone'}")
    configure = ("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={installed}", *options)
    run(project, environment, *configure)
    assert f"POLICYBRIDGE_RUN:FILEPATH={installed}/bin" in (project / "build" / "CMakeCache.txt").read_text()
    (installed / "bin" / "policybridge-run").unlink()
    alone = {**environment, "PATH": os.environ["PATH"]}
    done = subprocess.run(configure, cwd=project, env=alone, capture_output=True, text=True, check=False)
    assert "there is no policybridge-run" in done.stderr


def test_no_plugin_is_loaded_from_a_folder_beside_the_launcher_into_which_others_may_write(
    project: Path, prefix: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(prefix, installed)
    (folder,) = (each.parent for each in installed.rglob(f"policybridge-inliner-{MAJOR}.so"))
    alone = {name: value for name, value in environment.items() if name != "POLICYBRIDGE_PLUGINS"}
    words = (installed / "bin" / "policybridge-run", "--", "clang++-22", "-Oz", "-c", "words.cpp", "-o", "made.o")
    for mode, said in ((0o755, False), (0o777, True)):
        folder.chmod(mode)
        done = subprocess.run(words, cwd=project, env=alone, capture_output=True, text=True, check=True)
        assert ("there is no plugin that this compiler loads" in done.stderr) is said
