"""The native clients, built once and again only where a source changed."""

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
"""Environment variable: set where the toolchain has to be there, so that nothing is skipped."""

Target = Callable[..., Path]


def missing(what: str) -> None:
    """Skip the test that needs ``what``, or fail it where everything has to be there."""
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
