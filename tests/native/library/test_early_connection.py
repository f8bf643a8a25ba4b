"""The connection that plugins make while a compiler reads its source, by the program clients/cpp/tests/early.cpp."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_serdes.interactive import header_line
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.measures.delaying import Way, far
from tests.native.conftest import Target, build_grpc
from tests.native.grpc.test_grpc import BUILDS, SUPPRESSIONS
from tests.peers.endless import endless_form
from tests.server.ledger.asking import await_forms, write_policies

DECISIONS = 3000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(repository, Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        await_forms(running.socket)
        yield running


@pytest.fixture(params=["sanitized", "threads"])
def program(request: pytest.FixtureRequest, native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TSAN_OPTIONS", f"suppressions={SUPPRESSIONS}")
    build_grpc(native, *BUILDS[request.param])
    return native("policybridge-early", *BUILDS[request.param]) / "bin" / "policybridge-early"


def run(program: Path, address: str, mode: str, policy: str = "network", seconds: int = 10) -> str:
    """Give what the program prints, which ends by itself and without a sanitizer's word."""
    words = [str(program), address, policy, header_line(SIGNATURE).decode().strip(), mode, str(seconds)]
    done = subprocess.run(words, env=os.environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def ledger(server: RunningServer) -> LedgerReader:
    return LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db")


@pytest.mark.parametrize("mode", ["decides", "differs"])
@pytest.mark.parametrize("door", ["grpc", "socket"])
def test_all_decisions_and_the_outcome_are_in_the_ledger_when_the_process_has_ended(
    program: Path, server: RunningServer, mode: str, door: str
) -> None:
    session = run(program, getattr(server, door), mode)
    with ledger(server) as reader:
        found = reader.session(session)
        assert found.decisions == DECISIONS
        assert found.outcome is not None
        assert found.outcome.values["decisions"] == DECISIONS
        assert not found.interrupted


@pytest.mark.parametrize("mode", ["expects", "connects"])
@pytest.mark.parametrize("door", ["grpc", "socket"])
def test_a_session_that_nothing_was_asked_in_leaves_no_record(
    program: Path, server: RunningServer, mode: str, door: str
) -> None:
    with ledger(server) as reader:
        before = len(list(reader.sessions()))
        assert run(program, getattr(server, door), mode) == ""
        assert len(list(reader.sessions())) == before


def test_a_session_that_is_given_up_has_its_decisions_and_no_outcome(program: Path, server: RunningServer) -> None:
    session = run(program, server.grpc, "fails")
    with ledger(server) as reader:
        assert reader.session(session).outcome is None


def test_a_policy_that_there_is_not_is_told_when_it_is_asked_for(program: Path, server: RunningServer) -> None:
    assert "no policy" in run(program, server.grpc, "decides", "nobody")


def test_a_server_that_does_not_answer_is_not_waited_for_by_what_asks_nothing(program: Path) -> None:
    with far(Way(1, 0.0, silent=True)) as port:
        for mode in ("expects", "connects"):
            assert run(program, f"grpc:127.0.0.1:{port}", mode) == ""


def test_a_socket_that_does_not_answer_is_not_waited_for_by_what_asks_nothing(program: Path) -> None:
    with TemporaryDirectory(prefix="pb-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/s")
        listening.listen()
        for mode in ("expects", "connects"):
            assert run(program, f"socket:{folder}/s", mode) == ""


def test_a_form_that_does_not_end_is_given_up_after_the_time_out(program: Path) -> None:
    with endless_form() as address:
        # Both sides are busy until then.
        assert run(program, address, "decides", seconds=1).startswith("no answer from the server")


@pytest.mark.parametrize("address", ["grpc:127.0.0.1:1", "socket:/no/such"])
def test_an_absent_server_is_told_as_such(program: Path, address: str) -> None:
    assert "could not reach the server" in run(program, address, "decides")
