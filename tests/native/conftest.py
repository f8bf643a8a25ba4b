"""Building the native clients: each target once a session, and only where a source has changed."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.locks import one_at_a_time

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("POLICYBRIDGE_NATIVE_BUILD", ROOT / ".cache" / "native"))
MAJORS = ("19", "22")

REQUIRED = "POLICYBRIDGE_REQUIRE_NATIVE"
"""Environment variable: where it is set, a missing tool fails a test instead of skipping it."""

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


def _configure(build: Path, *options: str) -> Path:
    majors = ";".join(major for major in MAJORS if Path(f"/usr/lib/llvm-{major}/cmake").is_dir())
    command: list[str | Path] = ["cmake", "-S", ROOT / "clients", "-B", build, "-G", "Ninja", "-DPOLICYBRIDGE_TESTS=ON"]
    _run([*command, f"-DPOLICYBRIDGE_LLVM={majors}", *options])
    return build


@functools.cache
def built(target: str, build: Path = BUILD, *options: str) -> Path:
    """Build one target of the CMake project; give its build folder."""
    with one_at_a_time(build):
        _run(["cmake", "--build", _configure(build, *options), "--target", target])
    return build


def sanitized(sanitizers: str = "address,undefined") -> tuple[Path | str, ...]:
    """Give the folder and the options of the build with these sanitizers, for the fixture `native`.

    All tests share one such build, so that each source is compiled once.
    """
    flags = f"-O1 -g1 -fno-omit-frame-pointer -fsanitize={sanitizers}"
    if sanitizers != "thread":
        flags += " -fno-sanitize-recover=all"
    options = ("-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS={flags}", f"-DCMAKE_C_FLAGS={flags}")
    return BUILD.with_name(f"{BUILD.name}-{sanitizers.partition(',')[0]}"), *options


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


@pytest.fixture(scope="session")
def native() -> Target:
    """Build a target and give the build folder: ``native("policybridge-run") / "bin" / "policybridge-run"``."""
    for tool in ("cmake", "ninja", "g++"):
        if shutil.which(tool) is None:
            missing(tool)
    return built
