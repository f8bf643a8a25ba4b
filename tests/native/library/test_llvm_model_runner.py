"""The adapter for LLVM's own class, in a program of each LLVM major."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import RunningServer, running_server
from tests.native.conftest import MAJORS, Target, missing
from tests.repositories import answering, write_python


@pytest.fixture(params=MAJORS)
def program(request: pytest.FixtureRequest, native: Target) -> Path:
    if not Path(f"/usr/lib/llvm-{request.param}/cmake").is_dir():
        missing(f"llvm-{request.param}-dev")
    name = f"policybridge-llvm-runner-{request.param}"
    return native(name) / "bin" / name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "sum", answering('observation["a"] + observation["b"] + 1000 * (session.context == "f")'))
    write_python(repository, "fails", answering("1 // 0"))
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


def run(program: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def test_llvm_writes_features_in_place_and_evaluates_by_its_own_interface(program: Path, server: RunningServer) -> None:
    done = run(program, server.socket, "sum", 4, 38)
    assert (done.stdout, done.stderr) == ("1042\n", "")


def test_a_policy_that_fails_is_an_error_of_the_compilation(program: Path, server: RunningServer) -> None:
    done = run(program, server.socket, "fails", 1, 2)
    assert done.returncode == 1
    assert done.stderr.startswith("error: policybridge: the policy failed: ZeroDivisionError")


def test_with_a_fallback_the_compilation_goes_on(program: Path, server: RunningServer) -> None:
    for address in (server.socket, "socket:/nowhere/server.sock"):
        done = run(program, address, "fails", 1, 2, 77)
        assert (done.stdout, done.stderr) == ("77\n", "")
