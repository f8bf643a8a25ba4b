"""Numba, whose cost model of inlining asks a policy while it compiles."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.frameworks import require
from tests.repositories import answering, dying, write_python
from tests.server.publishing.policies import wait_for

require("numba")

from examples.compilers import numba_inlining  # noqa: E402

_SMALL = 'observation["callee_calls"] == 0'


def escaping(x: float, y: float) -> int:
    a, b = 0.0, 0.0
    for step in range(100):
        if a * a + b * b > 4:
            return step
        a, b = a * a - b * b + x, 2 * a * b + y
    return 100


STEPS = sum(escaping(3 * column / 10 - 2, 2 * row / 10 - 1) for row in range(10) for column in range(10))
"""What the program gives for ten points a side, by plain Python."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "numba-inlining", answering(_SMALL))
    write_python(repository, "all", answering("True"))
    write_python(repository, "failing", answering("1 / 0"))
    write_python(repository, "dying", dying("True", after=1))
    return repository


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[tuple[RunningServer, Path]]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        with running_server(repository, folder, "--ledger", folder / "ledger.db") as server:
            yield server, folder / "ledger.db"


def compiled(address: str, policy: str) -> tuple[int, dict[str, bool]]:
    """Give the program's result, and which functions were inlined."""
    with numba_inlining.Inliner(address, policy) as inliner:
        steps = numba_inlining.make_program(inliner)(10)
    return steps, {callee: inlined for _, callee, inlined in inliner.decisions}


@pytest.mark.parametrize("way", ["socket", "inprocess"])
def test_the_policy_says_which_functions_are_inlined_and_the_result_stays(
    repository: Path, served: tuple[RunningServer, Path], way: str
) -> None:
    address = served[0].socket if way == "socket" else f"inprocess:{repository}"
    assert compiled(address, "numba-inlining") == (STEPS, {"escape": False, "norm": True})


def test_the_policy_is_told_what_the_intermediate_representations_are_made_of(
    served: tuple[RunningServer, Path],
) -> None:
    server, ledger = served
    assert compiled(server.socket, "all") == (STEPS, {"escape": True, "norm": True})
    with LedgerReader(ledger) as reader:
        # The session is ended without waiting for the ledger.
        wait_for(lambda: any(session.closed for session in reader.sessions(Query(policy="all"))))
        (session,) = reader.sessions(Query(policy="all"))
        batches = list(reader.trajectory(session).batches)
    contexts = [context for batch in batches for context in batch.contexts]
    told = {
        name: np.concatenate([batch.observations[name].reshape(-1) for batch in batches]).tolist()
        for name in numba_inlining.NAMES
    }
    assert told["arguments"] == [2, 2]
    assert (told["caller_loops"], told["loop_depth"], told["callee_loops"]) == ([2, 1], [2, 1], [1, 0])
    assert told["callee_calls"][1] == 0 < told["caller_calls"][1]
    assert min(told["callee_statements"] + told["callee_blocks"]) > 0
    assert ["total" in contexts[0], "escape" in contexts[1]] == [True, True], contexts


@pytest.mark.parametrize("policy", ["nowhere", "failing"])
def test_where_there_is_no_advice_numba_compiles_as_it_would_without(
    served: tuple[RunningServer, Path], policy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compiled(served[0].socket, policy) == (STEPS, {"escape": False, "norm": False})
    assert capfd.readouterr().err.count("no advice") == 1


def test_a_server_that_dies_in_the_middle_leaves_the_result_as_it_is(
    server_factory: ServerFactory, repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = server_factory(repository)
    assert compiled(server.socket, "dying") == (STEPS, {"escape": True, "norm": False})
    assert "no advice" in capfd.readouterr().err


def test_the_example_is_a_program(repository: Path) -> None:
    words = [sys.executable, numba_inlining.__file__, f"inprocess:{repository}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "steps: 304548\ntotal: escape is called\nescape: norm is inlined\n"
