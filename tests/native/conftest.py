"""Building the native clients: each target once a session, and only where a source has changed."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.compiler_cache import launchers
from tests.conftest import RunningServer, running_server
from tests.locks import one_at_a_time

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("POLICYBRIDGE_NATIVE_BUILD", ROOT / ".cache" / "native"))
MAJORS = ("19", "22")
GCC = "12"
"""The major of GCC that plugins are built for."""
MLIR_MAJOR = "22"
"""The major of MLIR that a plugin is built for."""

REQUIRED = "POLICYBRIDGE_REQUIRE_NATIVE"
"""Environment variable: where it is set, a missing tool fails a test instead of skipping it."""

ASAN_OPTIONS = "intercept_tls_get_addr=0"
"""For all programs of a sanitized build.

Up to GCC 13, ASan takes thread-local memory that begins 16 bytes behind a page's start for glibc 2.19's, reads its
place and size from the header of ASan's allocator, and LeakSanitizer dies of them ("Tracer caught signal 11",
google/sanitizers#1322). Without the interceptor LeakSanitizer finds this memory among the loader's allocations.
"""

Target = Callable[..., Path]


def missing(what: str) -> None:
    """Skip the test that needs ``what``; fail it where POLICYBRIDGE_REQUIRE_NATIVE is set."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{what} is missing, and {REQUIRED} is set")
    pytest.skip(f"{what} is missing")


@functools.cache
def configured(build: Path = BUILD, *options: str) -> Path:
    """Configure the CMake project with ``options``; give its build folder."""
    with one_at_a_time(build):
        return _configure(build, *options)


# Once a process, not once a target: ninja configures again by itself where a CMakeLists.txt has changed.
@functools.cache
def _configure(build: Path, *options: str) -> Path:
    majors = ";".join(major for major in MAJORS if Path(f"/usr/lib/llvm-{major}/cmake").is_dir())
    command: list[str | Path] = ["cmake", "-S", ROOT / "clients", "-B", build, "-G", "Ninja", "-DPOLICYBRIDGE_TESTS=ON"]
    gcc = [f"-DPOLICYBRIDGE_GCC={GCC}"] if shutil.which(f"gcc-{GCC}") else []
    mlir = [f"-DPOLICYBRIDGE_MLIR={MLIR_MAJOR}"] if Path(f"/usr/lib/llvm-{MLIR_MAJOR}/include/mlir").is_dir() else []
    cached = [f"-D{name}={value}" for name, value in launchers(build.parent).items()]
    _run([*command, f"-DPOLICYBRIDGE_LLVM={majors}", *gcc, *mlir, *cached, *options])
    return build


@functools.cache
def built(target: str, build: Path = BUILD, *options: str) -> Path:
    """Build one target of the CMake project; give its build folder."""
    with one_at_a_time(build):
        _run(["cmake", "--build", _configure(build, *options), "--target", target])
    return build


def sanitized(sanitizers: str = "address,undefined") -> tuple[Path | str, ...]:
    """Give the folder and the options of the build with these sanitizers, for the fixture `native`.

    All tests share one such build. It is unoptimised, each target as one source, without the compilers' plugins, and by
    clang where its runtime is installed, so that it compiles in a quarter of the time.
    """
    flags = f"-O0 -g1 -fno-omit-frame-pointer -fsanitize={sanitizers}"
    if sanitizers != "thread":
        flags += " -fno-sanitize-recover=all"
    unity = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
    plugins = ("-DPOLICYBRIDGE_LLVM=", "-DPOLICYBRIDGE_GCC=", "-DPOLICYBRIDGE_MLIR=")
    flags_of = tuple(f"-DCMAKE_{language}_FLAGS={flags}" for language in ("C", "CXX"))
    clang = _by_clang()
    # CMake forgets options where the compiler of a folder changes.
    name = f"{BUILD.name}-{sanitizers.partition(',')[0]}{'-clang' if clang else ''}"
    return BUILD.with_name(name), "-DCMAKE_BUILD_TYPE=None", *flags_of, *unity, *plugins, *clang


def _by_clang() -> tuple[str, ...]:
    clang = f"clang-{MAJORS[-1]}"
    if shutil.which(clang) is None or not list(Path(f"/usr/lib/llvm-{MAJORS[-1]}").glob("lib/clang/*/lib/*/*asan*")):
        return ()
    return f"-DCMAKE_C_COMPILER={clang}", f"-DCMAKE_CXX_COMPILER={clang.replace('clang', 'clang++')}"


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def build_grpc(native: Target, *build: Path | str) -> Path:
    """Build what plugins and the launcher load to reach a server by gRPC; give its path."""
    packages = ("pkg-config", "--exists", "grpc++", "protobuf")
    if shutil.which("grpc_cpp_plugin") is None or subprocess.run(packages, check=False).returncode:
        missing("libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc")
    return native("policybridge-grpc", *build) / "lib" / "policybridge-grpc.so"


@pytest.fixture(scope="session", autouse=True)
def _asan_options() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("ASAN_OPTIONS", ASAN_OPTIONS)
        yield


@pytest.fixture
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep to the test what its compilers learn about their servers."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def ledger() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as folder:
        yield Path(folder) / "ledger.db"


@pytest.fixture(scope="module")
def server(repository: Path, ledger: Path) -> Iterator[RunningServer]:
    """Serve the module's repository with a ledger."""
    with running_server(repository, ledger.parent, "--ledger", ledger) as running:
        yield running


@pytest.fixture(scope="session")
def native() -> Target:
    """Build a target and give the build folder: ``native("policybridge-run") / "bin" / "policybridge-run"``."""
    for tool in ("cmake", "ninja", "g++"):
        if shutil.which(tool) is None:
            missing(tool)
    return built


@pytest.fixture(scope="session")
def launcher(native: Target) -> str:
    """Build the launcher."""
    return str(native("policybridge-run") / "bin" / "policybridge-run")
