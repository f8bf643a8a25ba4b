"""Two workers behind one gRPC address and one Unix socket serve as one server does."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from policybridge_client.contract import ClientSession
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import (
    NotFoundError,
    PreconditionError,
    TooLargeError,
    UnavailableError,
)
from policybridge_serdes import Outcome, PolicyReference
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, command, running_server
from tests.repositories import write_python
from tests.server.open_inference.inference_policies import tensor
from tests.server.publishing.policies import Client, ask, client, wait_for, write_adder, write_policy
from tests.server.workers.fleet import (
    WORKERS,
    alive,
    asked,
    metric,
    on_all,
    opened,
    sessions,
    spread,
    worker_of,
    workers,
)

ONCE = """
import os, pathlib
_mark = pathlib.Path({path!r})
if _mark.exists() and _mark.read_text() != str(os.getpid()):
    raise RuntimeError("no other process loads this")
_mark.write_text(str(os.getpid()))

class Policy:
    def evaluate(self, session, observation):
        return 1
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Give a folder with a repository and a configuration."""
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_policy(folder / "policies")
        (folder / "serve.toml").write_text("max_sessions = 1000\n")
        yield folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    more = ("--allow-publish", "--ledger", folder / "ledger.db", "--http", "127.0.0.1:0", "--config")
    with running_server(folder / "policies", folder, "--workers", WORKERS, *more, folder / "serve.toml") as server:
        yield server


@pytest.fixture
def made(server: RunningServer) -> Iterator[Client]:
    with client(server) as made:
        yield made


def versions_of_new(server: RunningServer, policy: str = "adder") -> set[int]:
    """Open sessions until every worker has answered some; give the versions that they got."""
    with ExitStack() as stack:
        found = on_all(stack, server.socket, server.grpc, policy=policy)
        return {session.policy.version for session in found}


def test_sessions_over_the_socket_and_grpc_are_spread_evenly_over_the_workers(server: RunningServer) -> None:
    with sessions(server, 4) as found:
        assert len(spread(found)) == WORKERS
        assert [ask(session) for session in found] == [ask(found[0])] * 8
        assert asked(server, "/page/state")["sessions"] == 8


def test_a_publication_is_served_by_every_worker_when_it_is_acknowledged_and_open_sessions_keep_theirs(
    server: RunningServer, made: Client, tmp_path: Path
) -> None:
    with sessions(server, 1) as before:
        old = {session.policy.version for session in before}
        for number in range(3):
            published = made.repository.publish("adder", write_adder(tmp_path / str(number), 1000 + number))
            assert versions_of_new(server) == {published.version}
        assert {session.policy.version for session in before} == old
        assert [ask(session) < 1000 for session in before] == [True, True]


def test_aliases_roll_outs_and_retired_versions_are_the_same_in_every_worker(
    server: RunningServer, made: Client, folder: Path, tmp_path: Path
) -> None:
    numbers = [
        made.repository.publish("adder", write_adder(tmp_path / str(number), number)).version for number in (11, 12, 13)
    ]
    made.repository.set_alias("adder", "stable", numbers[0])
    assert versions_of_new(server, "adder@stable") == {numbers[0]}
    made.repository.roll_out(PolicyReference("adder", numbers[1]), 1.0, alias="stable")
    made.repository.end_rollout("adder", promote=True)
    assert versions_of_new(server, "adder@stable") == {numbers[1]}
    retired = folder / "policies" / "adder" / str(numbers[0])
    with sessions(server, 1, f"adder@{numbers[0]}") as last:
        made.repository.retire("adder", numbers[0])
        with ExitStack() as stack:
            for address in (server.socket, server.grpc, server.socket, server.grpc):
                with pytest.raises(NotFoundError):
                    opened(stack, address, f"adder@{numbers[0]}")
        assert [ask(session) for session in last] == [11, 11]
        assert retired.is_dir()
    wait_for(lambda: not retired.exists())


def test_a_version_that_one_worker_cannot_load_is_served_by_none(
    server: RunningServer, made: Client, tmp_path: Path
) -> None:
    before = versions_of_new(server)
    write_python(tmp_path, "once", ONCE.format(path=str(tmp_path / "mark")))
    with pytest.raises(PreconditionError, match="no other process loads this"):
        made.repository.publish("once", tmp_path / "once" / "1", config=(tmp_path / "once" / "policy.toml").read_text())
    with ExitStack() as stack:
        for _ in range(4):
            with pytest.raises(NotFoundError):
                opened(stack, server.socket, "once")
    assert versions_of_new(server) == before


def test_an_outcome_reaches_the_ledger_through_whichever_worker_it_is_reported_to(
    server: RunningServer, folder: Path
) -> None:
    with ExitStack() as stack:
        found = on_all(stack, server.socket)
        # All channels of a process to one server share a connection, and so a worker.
        connection, near = opened(stack, server.grpc)
        assert len({worker_of(near), *map(worker_of, found)}) == WORKERS
        for number, session in enumerate(found):
            ask(session)
            # It is acknowledged before the session's own worker would have written it by itself.
            connection.report_outcome(session.id, Outcome({"text": number}, "ok"))
        with pytest.raises(NotFoundError):
            connection.report_outcome("0" * 32, Outcome({"text": 2.0}, "ok"))
        with LedgerReader(folder / "ledger.db") as reader:
            records = {record.id: record for record in reader.sessions()}
    for number, session in enumerate(found):
        assert records[session.id].outcome == Outcome({"text": number}, "ok")
        assert records[session.id].decisions == 1


def test_no_second_server_writes_the_ledger_of_workers(server: RunningServer, folder: Path) -> None:
    assert server.process.poll() is None
    for count in (1, WORKERS):
        words = ("--demo", "--workers", count, "--socket", folder / "second.sock", "--ledger", folder / "ledger.db")
        done = subprocess.run(command("serve", *words), capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"another server writes the ledger {folder}/ledger.db" in done.stderr


def test_metrics_are_summed_and_never_fall_when_a_worker_is_killed_and_replaced(server: RunningServer) -> None:
    before = metric(server, "policybridge_decisions_total")
    with sessions(server, 2) as found:
        for session in found:
            for _ in range(5):
                ask(session)
        wait_for(lambda: metric(server, "policybridge_decisions_total") == before + 20)
        assert metric(server, "policybridge_sessions") == 4
        first, killed = workers(server)
        os.kill(killed, signal.SIGKILL)
        assert len({worker_of(session) for session in found if not answers(session)}) == 1
    wait_for(lambda: len(workers(server)) == WORKERS and killed not in workers(server))
    # Until the new one serves, the other one takes all that come.
    wait_for(lambda: all_take_sessions(server))
    assert metric(server, "policybridge_decisions_total") >= before + 20
    assert metric(server, "policybridge_sessions") == 0
    assert first in workers(server)


def answers(session: ClientSession) -> bool:
    """Ask; false: the session's worker is gone."""
    try:
        ask(session)
    except UnavailableError:
        return False
    return True


def all_take_sessions(server: RunningServer) -> bool:
    """Whether each worker gets one of some sessions; the first ones all go to a worker that has just come."""
    with ExitStack() as stack, suppress(AssertionError):
        on_all(stack, server.socket)
        return True
    return False


def test_what_a_killed_first_worker_served_its_replacement_serves(
    server: RunningServer, made: Client, folder: Path, tmp_path: Path
) -> None:
    published = made.repository.publish("adder", write_adder(tmp_path / "new", 5000)).version
    with ExitStack() as stack:
        found = on_all(stack, server.socket)
        for session in found:
            session.report(Outcome({"text": ask(session)}, "ok"))
        killed = workers(server)[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(workers(server)) == WORKERS and killed not in workers(server))
        wait_for(lambda: all_take_sessions(server))
        (lost,) = {worker_of(session) for session in found if not answers(session)}
    assert versions_of_new(server) == {published}
    assert "adder" in str(asked(server, "/page/state")), "the same HTTP port answers again"
    write_adder(folder / "policies" / "adder" / str(published + 1), 6000)
    wait_for(lambda: versions_of_new(server) == {published + 1})

    def ended() -> set[tuple[bool, bool]]:
        with LedgerReader(folder / "ledger.db") as reader:
            records = {record.id: record for record in reader.sessions()}
        return {(worker_of(each) == lost, records[each.id].interrupted) for each in found}

    wait_for(lambda: ended() == {(True, True), (False, False)})


def test_limits_hold_for_all_workers_together_and_a_reload_reaches_them(server: RunningServer, folder: Path) -> None:
    def reload(text: str) -> None:
        (folder / "serve.toml").write_text(text)
        server.process.send_signal(signal.SIGHUP)

    def opens(count: int) -> bool:
        with ExitStack() as stack:
            for index in range(count):
                try:
                    opened(stack, (server.socket, server.grpc)[index % 2])
                except TooLargeError:
                    return index == 5
            return count < 6

    reload("max_sessions = 5\n")
    wait_for(lambda: opens(6))
    reload("max_sessions = 1000\n")
    wait_for(lambda: not opens(6))


def test_a_sequence_stays_on_the_connection_that_began_it(server: RunningServer) -> None:
    with ExitStack() as stack:

        def connected() -> triton.InferenceServerClient:
            # By itself the library would share one connection, and so a worker.
            own = [("grpc.use_local_subchannel_pool", 1)]
            address = server.grpc.removeprefix("grpc:")
            return stack.enter_context(triton.InferenceServerClient(address, channel_args=own))

        def ask(client: triton.InferenceServerClient, **given: bool) -> str:
            reply = client.infer("adder", [tensor("x", np.array([[7]]))], sequence_id=1, **given)
            return str(reply.get_response().parameters["session_id"].string_param)

        first = connected()
        session = ask(first, sequence_start=True)
        others = [connected() for _ in range(8)]
        told = []
        for other in others:
            try:
                ask(other)
            except InferenceServerException as error:
                told.append(str(error))
        assert told, "all connections went to one worker"
        assert all("no sequence 1" in each for each in told)
        assert ask(first) == ask(first, sequence_end=True) == session


def test_sigterm_lets_sessions_end_refuses_new_ones_and_leaves_no_process(tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    with TemporaryDirectory(prefix="pb-") as name, ExitStack() as stack:
        folder = Path(name)
        ledger = folder / "ledger.db"
        server = stack.enter_context(
            running_server(tmp_path / "policies", folder, "--workers", WORKERS, "--ledger", ledger)
        )
        processes = workers(server)
        found = on_all(stack, server.socket)
        server.process.terminate()
        wait_for(lambda: not (folder / "server.sock").exists())
        with pytest.raises(UnavailableError):
            opened(stack, server.socket)
        assert {ask(session) for session in found} == {100}
        for session in found:
            session.report(Outcome({"text": 1.0}, "ok"))
            session.close()
        assert server.process.wait(60) == 0
        assert not any(map(alive, processes))
        with LedgerReader(ledger) as reader:
            assert [record.decisions for record in reader.sessions()] == [1] * len(found)
            assert not any(record.interrupted for record in reader.sessions())


def test_a_killed_parent_takes_its_workers_with_it_and_the_next_server_has_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    write_policy(tmp_path / "policies")
    with TemporaryDirectory(prefix="pb-") as name, ExitStack() as stack:
        folder = Path(name)
        more = ("--workers", WORKERS, "--allow-publish", "--ledger", folder / "ledger.db")
        first = stack.enter_context(running_server(tmp_path / "policies", folder, *more))
        processes = workers(first)
        found = on_all(stack, first.socket)
        for session in found:
            ask(session)
            session.report(Outcome({"text": 1.0}, "ok"))
        first.process.kill()
        wait_for(lambda: not any(map(alive, processes)))
        next_one = stack.enter_context(running_server(tmp_path / "policies", folder, *more))
        with RepositoryClient(next_one.grpc, timeout=60) as repository:
            assert repository.publish("adder", write_adder(tmp_path / "new", 200)).version == 2
        with LedgerReader(folder / "ledger.db") as reader:
            records = list(reader.sessions())
        assert {record.id for record in records} == {session.id for session in found}
        assert all(record.decisions == 1 and record.interrupted for record in records)
