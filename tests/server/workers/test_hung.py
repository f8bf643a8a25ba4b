"""A worker that stands still keeps nobody from the numbers; it is told, and another process takes its place."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import ask, wait_for, write_policy
from tests.server.workers.fleet import WORKERS, alive, asked, metric, on_all, opened, worker_of, workers


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def server(tmp_path: Path, log: Path) -> Iterator[RunningServer]:
    write_policy(tmp_path / "policies")
    # The shortest time that the parent waits.
    more = ("--workers", WORKERS, "--decision-timeout", 1, "--http", "127.0.0.1:0")
    to_log = ("sh", "-c", f'exec "$@" 2> {log}', "sh")
    with (
        TemporaryDirectory(prefix="pb-") as name,
        running_server(tmp_path / "policies", Path(name), *more, before=to_log) as server,
    ):
        yield server


def lines(log: Path) -> list[str]:
    """Give the lines of the log about workers."""
    return [line for line in log.read_text().splitlines() if "worker" in line]


def refused(server: RunningServer, path: str) -> str:
    """Ask the server's HTTP port for what it does not have now."""
    address = next(each for each in server.others if each.startswith("http:"))
    with closing(http.client.HTTPConnection(address.removeprefix("http:"), timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 503
        return str(json.loads(answer.read())["error"])


def test_the_numbers_of_a_server_are_there_while_a_worker_stands_still_and_it_is_told_and_replaced(
    server: RunningServer, log: Path
) -> None:
    with ExitStack() as stack:
        for session in on_all(stack, server.socket):
            ask(session)
        wait_for(lambda: metric(server, "policybridge_decisions_total") >= 4)
        decisions = metric(server, "policybridge_decisions_total")
        assert metric(server, "policybridge_workers") == metric(server, "policybridge_workers_answering") == WORKERS
        first, hung = workers(server)
        os.kill(hung, signal.SIGSTOP)
        assert metric(server, "policybridge_workers_answering") == 1
        assert metric(server, "policybridge_decisions_total") == decisions
        assert asked(server, "/page/state")["workers"] == {"count": WORKERS, "answering": 1}
        assert ask(opened(stack, server.socket)[1]) == 100, "the other one takes new sessions"
    wait_for(lambda: not alive(hung))
    wait_for(lambda: metric(server, "policybridge_workers_answering") == WORKERS)
    assert first in workers(server)
    assert hung not in workers(server)
    assert metric(server, "policybridge_decisions_total") >= decisions
    silent, replaced = lines(log)[:2]
    assert f"worker 1 (process {hung}) has not answered for" in silent
    assert f"worker 1 (process {hung}) was ended because it had not answered for 10 s" in replaced
    assert "another process takes its place" in replaced


def test_a_first_worker_that_stands_still_is_replaced_and_the_http_port_answers_again(server: RunningServer) -> None:
    hung = workers(server)[0]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: not alive(hung))

    def answers() -> bool:
        with suppress(OSError, http.client.HTTPException):
            return metric(server, "policybridge_workers_answering") == WORKERS
        return False

    wait_for(answers)


def test_a_server_with_a_worker_that_stands_still_ends(server: RunningServer) -> None:
    os.kill(workers(server)[1], signal.SIGSTOP)
    server.process.terminate()
    assert server.process.wait(60) == 0


def test_a_server_that_was_stopped_as_a_whole_keeps_its_workers(server: RunningServer, log: Path) -> None:
    processes = workers(server)
    with ExitStack() as stack:
        found = on_all(stack, server.socket)
        server.process.send_signal(signal.SIGSTOP)
        # Longer than a worker may be silent.
        refusals = [refused(server, "/metrics") for _ in range(3)]
        server.process.send_signal(signal.SIGCONT)
        assert set(refusals) == {"the parent of the workers has not answered for 5 s"}
        wait_for(lambda: metric(server, "policybridge_workers_answering") == WORKERS)
        assert {ask(session) for session in found} == {100}
        assert len({worker_of(session) for session in found}) == WORKERS
    assert workers(server) == processes
    assert not lines(log)
