"""What every contender has to do: be ready, and answer whatever way it offers."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_bench.command import add_arguments
from policybridge_bench.contenders.contract import Setting, load_contender
from policybridge_bench.drive import GENERATORS
from policybridge_bench.loads import Loads
from policybridge_bench.payloads import SIGNATURE
from policybridge_bench.processes import regime, usage
from policybridge_bench.requests import write_messages
from policybridge_core.errors import InvalidError, PreconditionError
from tests.bench.running import CACHE, bench, peers
from tests.peers.native import prepare, program, session_head
from tests.peers.scenarios import peers as every_contender
from tests.peers.tables import CONTENDERS, FLOORS, PEERS, SCENARIOS

NATIVE = "POLICYBRIDGE_REQUIRE_NATIVE"
"""Environment variable: set where the native programs have to build."""

OTHERS = "POLICYBRIDGE_TEST_PEERS"
"""Environment variable: set where other servers shall be installed, some gigabytes, and asked too."""


@pytest.fixture(scope="session")
def client() -> Path | None:
    try:
        return program("policybridge-load", CACHE)
    except PreconditionError as error:
        if os.environ.get(NATIVE):
            pytest.fail(f"{error}, and {NATIVE} is set")
        return None


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as made:
        yield Path(made)


def ask(name: str, client: Path | None, folder: Path) -> tuple[set[str], dict[str, int]]:
    """Serve a contender; give the ways that it offers to our generators, and the answers by way."""
    contender = load_contender(name, CONTENDERS)
    contender.prepare(CACHE)
    table = {"native": prepare, **GENERATORS}
    wanted = ["native", "python"] if client else ["python", "wire"]
    generators = {name: table[name](CACHE, folder) for name in wanted}
    loads = Loads(generators, [2], [None], seconds=0.05, warm_up=0.02)
    with contender.serve(Setting(folder, CACHE, ["inliner"])) as serving:
        counts = {each.case.way: each.measure().count for each in loads.candidates(name, serving)}
    return {route.way for route in serving.routes if generators.keys() & set(route.generators)}, counts


@pytest.mark.parametrize("name", ["policybridge", *FLOORS, *(PEERS if os.environ.get(OTHERS) else [])])
def test_a_contender_answers_by_every_way_that_it_offers(name: str, client: Path | None, folder: Path) -> None:
    # In a process of its own: other tests import Triton's client, whose messages have the names of ours.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            offered, counts = process.submit(ask, name, client, folder).result()
        except PreconditionError as error:
            if os.environ.get(NATIVE):
                raise
            pytest.skip(str(error))
    assert counts.keys() == offered
    assert all(counts.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind=pigeon", "--address=x", "--file={file}"], "no kind of client is called pigeon"),
        (["--kind=session", "--address=socket:/nonexistent", "--file={file}"], "/nonexistent"),
        (["--kind=session", "--address=x", "--file=/nonexistent"], "/nonexistent holds no message"),
        (["--kind=session"], "--address=ADDRESS"),
        (["--seconds=soon"], "--seconds=soon"),
    ],
)
def test_the_native_client_says_what_is_wrong_and_gives_no_figures(
    words: list[str], message: str, client: Path | None, folder: Path
) -> None:
    if client is None:
        pytest.skip("the native client cannot be built here")
    file = folder / "messages"
    write_messages([bytes(304)], file, session_head(SIGNATURE))
    done = subprocess.run(
        [client, *(word.format(file=file) for word in words)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stdout == ""


ADDED = """
from policybridge_bench.contenders.own import PolicyBridge


class Added(PolicyBridge):
    pass
"""


def test_a_contender_of_another_distribution_is_chosen_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "added_contender.py").write_text(ADDED)
    (tmp_path / "added-1.0.dist-info").mkdir()
    (tmp_path / "added-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    points = "[policybridge.contenders]\nadded = added_contender:Added\n"
    (tmp_path / "added-1.0.dist-info" / "entry_points.txt").write_text(points)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = [
        "--contenders",
        "added/socket",
        "--rounds",
        "1",
        "--seconds",
        "0.05",
        "--clients",
        "1",
        "--generators",
        "wire",
    ]
    ended = bench(*words, env={"PYTHONPATH": path})
    assert ended.status == 0, ended.errors
    assert "added socket bitstream onnx inliner wire ×1" in ended.output


def test_the_table_lists_all_floors_and_peers() -> None:
    assert set(CONTENDERS.own) == {"policybridge", *FLOORS, *PEERS}


def test_ray_takes_part_in_peers_only_if_it_is_named() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, SCENARIOS, CONTENDERS)
    for words, expected in (
        ([], {"policybridge", *FLOORS, *PEERS} - {"rayserve"}),
        (["--contenders", "policybridge,grpc-echo,rayserve"], {"policybridge", "grpc-echo", "rayserve"}),
    ):
        arguments = parser.parse_args(["peers", *words, "--payloads", "unknown"])
        # The payload ends the run before a contender is started.
        with pytest.raises(InvalidError, match="unknown payload"):
            every_contender(arguments)
        assert set(arguments.contenders.split(",")) == expected


def test_a_contender_that_cannot_be_built_is_left_out_and_said_why() -> None:
    words = ["--contenders", "policybridge,grpc-echo", "--ways", "socket", "--rounds", "1", "--seconds", "0.05"]
    ended = peers(*words, "--clients", "1", "--generators", "python", env={"PATH": "/nonexistent"})
    assert ended.status == 0, ended.errors
    assert "without grpc-echo: the native programs need cmake" in ended.errors
    assert "policybridge socket" in ended.output


def test_ratios_are_taken_to_the_baseline() -> None:
    words = [
        "--contenders",
        "policybridge,python-socket-echo",
        "--ways",
        "socket",
        "--baseline",
        "python-socket-echo/unix",
    ]
    ended = peers(*words, "--rounds", "1", "--seconds", "0.05", "--clients", "1", "--generators", "wire")
    assert ended.status == 0, ended.errors
    assert "p50 / python-socket-echo unix" in ended.output
    assert "1.00" in ended.output


def test_peers_holds_what_is_promised_against_the_run(client: Path | None) -> None:
    if client is None:
        pytest.skip("the native client cannot be built here")
    words = ["--contenders", "policybridge,grpc-echo", "--ways", "socket", "--clients", "1"]
    ended = peers("peers", *words, "--rounds", "1", "--seconds", "0.05")
    assert ended.status == 0, ended.errors
    assert "p50 / grpc-echo unary" in ended.output
    assert "1 × socket / grpc-echo/unary, inliner, p50" in ended.output


def test_no_core_sleeps_in_the_busy_regime_and_nobody_spins_after_it() -> None:
    others = set(_children())
    with ExitStack() as stack:
        stack.enter_context(regime(busy=True))
        before = usage(os.getpid()).cpu
        while usage(os.getpid()).cpu - before < 0.05:
            pass
        children = set(_children()) - others
        assert len(children) == len(os.sched_getaffinity(0))
        assert {os.getpriority(os.PRIO_PROCESS, child) for child in children} == {19}
    assert not children & set(_children())


def _children() -> list[int]:
    return [
        int(pid) for file in Path(f"/proc/{os.getpid()}/task").glob("*/children") for pid in file.read_text().split()
    ]
