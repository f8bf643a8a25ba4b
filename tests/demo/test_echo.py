"""Under a policy that echoes LLVM's own decision, every object of the demo is the one that plain -Oz makes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.compilers import parameters
from tests.conftest import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(None, tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("transport", "jobs"), [("socket", 8), ("grpc", 8), ("socket", 1), ("grpc", 1)])
def test_zigs_objects_under_the_echo_of_the_default_are_those_of_plain_oz(
    server: RunningServer, tmp_path: Path, transport: str, jobs: int
) -> None:
    check_identical(server, tmp_path, "zig", transport, jobs)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("transport", "jobs"), [("socket", 8), ("grpc", 1)])
@pytest.mark.parametrize("compiler", parameters("clang-22", "clang-19"))
def test_debians_objects_under_the_echo_of_the_default_are_those_of_plain_oz(
    server: RunningServer, tmp_path: Path, compiler: str, transport: str, jobs: int
) -> None:
    check_identical(server, tmp_path, compiler, transport, jobs)


def check_identical(server: RunningServer, tmp_path: Path, compiler: str, transport: str, jobs: int) -> None:
    figures = tmp_path / "figures.json"
    asking = ["--server", getattr(server, transport), "--policy", "inlining-default"]
    command = [sys.executable, "-m", "policybridge_demo", "--compiler", compiler, "--jobs", str(jobs), *asking]
    subprocess.run([*command, "--json", figures], check=True)
    total = json.loads(figures.read_text())["total"]
    assert total["modules"] > 50
    assert total["decisions"] > 5000
    assert total["identical"] == total["modules"]
