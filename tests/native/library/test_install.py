"""The installed library: a CMake package, pkg-config files, and examples that compile with the command in them."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import RunningServer, running_server
from tests.native.conftest import BUILD, ROOT, Target, missing
from tests.repositories import answering, write_python

LIBRARY = (
    "-DPOLICYBRIDGE_GRPC=OFF",
    "-DPOLICYBRIDGE_ONNX=OFF",
    "-DPOLICYBRIDGE_LAUNCHER=OFF",
    "-DPOLICYBRIDGE_LLVM=",
    "-DPOLICYBRIDGE_GCC=",
)
"""Options with which only the library and the C ABI are built."""

EXAMPLES = {"c": ROOT / "clients/c/examples/advice.c", "cpp": ROOT / "clients/cpp/examples/advice.cpp"}


@pytest.fixture(scope="module", params=["static", "shared"])
def prefix(request: pytest.FixtureRequest, native: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library, and move the installed files: no file may contain the path of the installation."""
    target = BUILD.with_name(f"{BUILD.name}-{request.param}")
    kind = ("-DBUILD_SHARED_LIBS=ON",) if request.param == "shared" else ()
    staged = tmp_path_factory.mktemp("staged") / "prefix"
    options = (*kind, "-DPOLICYBRIDGE_TESTS=OFF", f"-DCMAKE_INSTALL_PREFIX={staged}")
    native("install", target, *LIBRARY, *options)
    moved: Path = staged.rename(tmp_path_factory.mktemp("moved") / "prefix")
    return moved


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "never", answering("0"))
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


def run(command: Sequence[str | Path], prefix: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def demand(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_advice(program: Path, prefix: Path, server: RunningServer) -> None:
    """Check that a program uses the policy, and decides by itself where there is no server."""
    assert demand(run([program, server.socket, "never"], prefix, program.parent)) == "call\n"
    alone = run([program, "socket:/nowhere/s.sock", "never"], prefix, program.parent)
    assert demand(alone) == "inline\n"
    assert "/nowhere/s.sock" in alone.stderr


@pytest.mark.parametrize("language", EXAMPLES)
def test_an_example_is_short_and_compiles_with_the_one_command_that_it_names(
    language: str, prefix: Path, server: RunningServer, tmp_path: Path
) -> None:
    if shutil.which("pkg-config") is None:
        missing("pkg-config")
    source = EXAMPLES[language].read_text()
    assert len(source.splitlines()) <= 45
    (command,) = re.findall(r"^[ /*]+(c(?:c|\+\+) .*)$", source, re.MULTILINE)
    shutil.copy(EXAMPLES[language], tmp_path)
    demand(run(["sh", "-c", command], prefix, tmp_path))
    check_advice(tmp_path / "advice", prefix, server)


@dataclass(frozen=True)
class Consumer:
    """A CMake project that uses the package."""

    language: str
    languages: str
    target: str
    components: str = ""

    def configure(self, prefix: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Write and configure it in ``folder``."""
        lines = [
            "cmake_minimum_required(VERSION 3.25)",
            f"project(Consumer LANGUAGES {self.languages})",
            f"find_package(PolicyBridge 0.1 CONFIG REQUIRED {self.components})",
            f"add_executable(advice {EXAMPLES[self.language]})",
            f"target_link_libraries(advice PRIVATE PolicyBridge::{self.target})",
        ]
        (folder / "CMakeLists.txt").write_text("\n".join(lines))
        return run(["cmake", "-G", "Ninja", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"], prefix, folder)


@pytest.mark.parametrize(
    "consumer",
    [Consumer("cpp", "CXX", "policybridge"), Consumer("c", "C", "c"), Consumer("c", "C CXX", "c")],
    ids=lambda consumer: f"{consumer.target}-{consumer.languages}",
)
def test_a_project_finds_the_package_and_links_its_target(
    consumer: Consumer, prefix: Path, server: RunningServer, tmp_path: Path
) -> None:
    demand(consumer.configure(prefix, tmp_path))
    demand(run(["cmake", "--build", "build"], prefix, tmp_path))
    check_advice(tmp_path / "build" / "advice", prefix, server)


def test_a_component_that_was_not_built_is_named(prefix: Path, tmp_path: Path) -> None:
    done = Consumer("cpp", "CXX", "grpc", "COMPONENTS grpc").configure(prefix, tmp_path)
    assert done.returncode != 0
    assert "was built without its component grpc" in " ".join(done.stderr.split())


def test_the_library_needs_nothing_but_libc_and_the_cpp_runtime(prefix: Path, tmp_path: Path) -> None:
    library = prefix / "lib" / "libpolicybridge_c.so"
    if not library.exists():
        library = tmp_path / "advice"
        flags = shlex.split(demand(run(["pkg-config", "--cflags", "--libs", "policybridge-c"], prefix, tmp_path)))
        demand(run(["cc", "-o", library, EXAMPLES["c"], *flags], prefix, tmp_path))
    needed = re.findall(r"^\s*(\S+) =>", demand(run(["ldd", library], prefix, tmp_path)), re.MULTILINE)
    system = ("linux-vdso", "libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpolicybridge.so")
    assert [name for name in needed if not name.startswith(system)] == []


def test_each_header_compiles_by_itself(tmp_path: Path) -> None:
    folders = [ROOT / "clients/cpp/include", ROOT / "clients/c/include"]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *(f"-I{folder}" for folder in folders)]
    for header in sorted(path for folder in folders for path in folder.rglob("*.h")):
        standards = {"policybridge.h": ["c11", "c++17", "c++20"], "llvm_model_runner.h": []}
        for standard in standards.get(header.name, ["c++17"]):
            if standard == "c11" and header.parent.name == "policybridge":
                continue
            language = "c++" if "+" in standard else "c"
            command: list[str | Path] = [
                "cc",
                f"-std={standard}",
                "-x",
                language,
                *warnings,
                "-include",
                header,
                "/dev/null",
            ]
            demand(run(command, tmp_path, tmp_path))
