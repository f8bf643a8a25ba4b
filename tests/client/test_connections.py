"""The connection contract: one suite, which the tests of every connection inherit."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from policybridge.v1 import replication_service_pb2 as pb
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.grpc import GrpcConnection
from policybridge_client.leader import LeaderLink
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    NotFoundError,
    PolicyBridgeError,
    PolicyFailedError,
    PreconditionError,
    UnavailableError,
)
from policybridge_serdes import (
    ElementType,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    pack,
    unpack,
)
from tests.client.leaving import leaving
from tests.conftest import RunningServer, ServerFactory

SUM = Signature.of(
    [
        TensorSpec("a", ElementType.INT64),
        TensorSpec("unknown", ElementType.FLOAT, (3,)),
        TensorSpec("b", ElementType.INT64),
    ],
    TensorSpec("sum", ElementType.INT64),
)
LONGEST = Signature.of([TensorSpec("names", ElementType.STRING, (-1,))], TensorSpec("longest", ElementType.STRING, ()))


def open_session(connection: Connection, policy: str = "sum", **options: str) -> ClientSession:
    signature = LONGEST if policy == "longest" else SUM
    return connection.open(PolicyReference.parse(policy), signature, SessionOptions("f", options, {"test": "yes"}))


def add(session: ClientSession, a: int, b: int) -> int:
    observation = pack(SUM.features, {"a": a, "b": b, "unknown": [0, 0, 0]})
    return int(session.evaluate(observation)["sum"][0, 0])


class ConnectionContract:
    """What every connection must do; a subclass gives one as a fixture."""

    def test_a_decision_is_the_policys(self, connection: Connection) -> None:
        session = open_session(connection)
        assert [add(session, 2, n) for n in (3, -5, 2**62)] == [5, -3, 2**62 + 2]
        session.close()

    def test_values_of_varying_size_and_strings_travel(self, connection: Connection) -> None:
        session = open_session(connection, "longest")
        for names in (["a", "größer"], ["x" * 100_000], ["b", "cc", "d"]):
            observation = pack(LONGEST.features, {"names": names})
            advice = unpack(LONGEST.advice_layout, session.evaluate(observation))
            assert advice["longest"][()] == max(names, key=len)
        session.close()

    def test_a_with_block_closes_a_session_and_a_connection(self, connection: Connection) -> None:
        with connection as entered, open_session(entered) as session:
            assert entered is connection
            assert add(session, 1, 2) == 3
        with pytest.raises(PolicyBridgeError):
            add(session, 1, 2)

    def test_a_session_says_who_answers(self, connection: Connection) -> None:
        session = open_session(connection, "never@2")
        assert (session.policy.name, session.policy.version) == ("never", 2)
        assert session.policy.digest.startswith("sha256:")
        assert session.id
        session.close()

    def test_without_a_version_the_latest_answers(self, connection: Connection) -> None:
        session = open_session(connection, "never")
        assert session.policy.version == 2
        session.close()

    def test_sessions_are_independent(self, connection: Connection) -> None:
        first, second = open_session(connection), open_session(connection)
        assert first.id != second.id
        first.close()
        assert add(second, 1, 1) == 2
        second.close()

    def test_sessions_in_threads_get_their_own_answers(self, connection: Connection) -> None:
        wrong: list[int] = []

        def ask(base: int) -> None:
            session = open_session(connection)
            wrong.extend(n for n in range(50) if add(session, base, n) != base + n)
            session.close()

        threads = [threading.Thread(target=ask, args=(1000 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_a_context_may_change_at_any_time(self, connection: Connection) -> None:
        session = open_session(connection)
        session.context("before")
        assert add(session, 1, 1) == 2
        session.context("g")
        session.context("größer")
        assert add(session, 1, 2) == 3
        session.close()

    def test_an_unknown_policy_is_not_found(self, connection: Connection) -> None:
        with pytest.raises(NotFoundError, match="nobody"):
            open_session(connection, "nobody")

    def test_a_missing_input_is_invalid_at_the_first_observation_at_the_latest(self, connection: Connection) -> None:
        signature = Signature.of([TensorSpec("a", ElementType.INT64)], SUM.advice)
        with pytest.raises(PolicyBridgeError):
            connection.open(PolicyReference("sum"), signature, SessionOptions()).evaluate(
                pack(signature.features, {"a": 1})
            )

    def test_a_policy_that_raises_is_an_error_with_its_message(self, connection: Connection) -> None:
        session = open_session(connection, raise_at="2")
        assert add(session, 1, 1) == 2
        with pytest.raises(PolicyFailedError, match="boom"):
            add(session, 1, 1)

    def test_after_an_error_the_session_is_over_and_others_are_not(self, connection: Connection) -> None:
        broken, whole = open_session(connection, raise_at="1"), open_session(connection)
        with pytest.raises(PolicyFailedError):
            add(broken, 1, 1)
        with pytest.raises(PolicyBridgeError):
            add(broken, 1, 1)
        broken.close()
        assert add(whole, 1, 1) == 2
        whole.close()

    def test_closing_twice_is_closing_once(self, connection: Connection) -> None:
        session = open_session(connection)
        session.close()
        session.close()
        connection.close()
        connection.close()

    def test_a_reachable_server_passes_the_check(self, connection: Connection) -> None:
        connection.check()


class RemoteContract(ConnectionContract):
    """What every connection to another process must do beside it; a subclass gives a server's address."""

    def address(self, running: RunningServer) -> str:
        raise NotImplementedError

    @pytest.fixture
    def connection(self, server: RunningServer) -> Iterator[Connection]:
        connection = connect(self.address(server))
        yield connection
        connection.close()

    def test_a_policy_that_hangs_meets_the_deadline_of_its_decision(self, server: RunningServer) -> None:
        awake = connect(self.address(server))
        add(open_session(awake, "sleepy"), 1, 1)
        awake.close()
        connection = connect(self.address(server), timeout=1)
        session = open_session(connection, "sleepy", sleep_at="3")
        assert [add(session, 1, n) for n in (1, 2)] == [2, 3]
        begun = monotonic()
        with pytest.raises(DeadlineError, match="within 1 s"):
            add(session, 1, 1)
        assert monotonic() - begun > 0.9
        connection.close()

    def test_a_session_may_last_longer_than_the_deadline_of_a_decision(self, server: RunningServer) -> None:
        connection = connect(self.address(server), timeout=2)
        session = open_session(connection)
        pause = threading.Event()
        for n in range(4):
            assert add(session, 1, n) == n + 1
            pause.wait(0.6)
        connection.close()

    def test_a_server_that_dies_is_unavailable(
        self, server_factory: ServerFactory, policies: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        running = server_factory(policies)
        connection = connect(self.address(running))
        session = open_session(connection)
        assert add(session, 1, 1) == 2
        running.kill()
        with pytest.raises(UnavailableError):
            add(session, 1, 1)
        with pytest.raises(UnavailableError):
            connection.check()
        with pytest.raises(UnavailableError):
            open_session(connection)
        connection.close()
        assert capfd.readouterr().err == ""

    def test_no_server_is_unavailable_and_the_message_names_the_address(self) -> None:
        nowhere = self.address(RunningServer(None, "grpc:127.0.0.1:1", "socket:/nowhere/server.sock"))  # type: ignore[arg-type]
        connection = connect(nowhere)
        with pytest.raises(UnavailableError, match=nowhere.partition(":")[2]):
            connection.check()
        with pytest.raises(UnavailableError, match=nowhere.partition(":")[2]):
            open_session(connection)
        connection.close()

    def test_a_timeout_of_nothing_is_invalid(self, server: RunningServer) -> None:
        with pytest.raises(InvalidError, match="timeout"):
            connect(self.address(server), timeout=0)


class TestSocket(RemoteContract):
    def address(self, running: RunningServer) -> str:
        return running.socket

    def test_a_peer_that_speaks_something_else_is_an_error(self, tmp_path: Path) -> None:
        path = str(tmp_path / "other.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()

            def answer() -> None:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(InvalidError, match="HTTP"):
                open_session(connect(path))
            thread.join()


class TestGrpc(RemoteContract):
    def address(self, running: RunningServer) -> str:
        return running.grpc

    @pytest.mark.parametrize("serdes", ["bitstream", "json", "protobuf"])
    def test_one_decision_needs_no_session(self, server: RunningServer, serdes: str) -> None:
        connection = GrpcConnection(server.grpc.removeprefix("grpc:"), 10, serdes=serdes)
        observation = pack(SUM.features, {"a": 2, "b": 3, "unknown": [0, 0, 0]})
        answer = connection.evaluate_once(PolicyReference("sum"), SUM.features, observation, SUM.advice)
        assert unpack(answer.layout, answer.values)["sum"].tolist() == [5]
        assert answer.policy.name == "sum"
        connection.close()

    def test_a_call_after_the_close_is_an_error_of_ours(self, server: RunningServer) -> None:
        connection = GrpcConnection(server.grpc.removeprefix("grpc:"), 10)
        connection.close()
        observation = pack(SUM.features, {"a": 2, "b": 3, "unknown": [0, 0, 0]})
        policies = RepositoryClient(server.grpc)
        policies.close()
        leader = LeaderLink(server.grpc)
        leader.close()
        for call in (
            lambda: open_session(connection),
            connection.check,
            lambda: connection.report_outcome("x", Outcome()),
            lambda: connection.evaluate_once(PolicyReference("sum"), SUM.features, observation),
            lambda: policies.set_alias("sum", "stable", 1),
            policies.replicas,
            lambda: next(leader.follow(pb.Hello())),
            lambda: next(leader.download(pb.DownloadRequest())),
        ):
            with pytest.raises(PreconditionError, match="was closed; make another one"):
                call()

    @pytest.mark.timeout(20)
    def test_a_server_that_leaves_as_a_session_is_opened_is_unavailable(self) -> None:
        with leaving() as port, connect(f"grpc:127.0.0.1:{port}") as connection, pytest.raises(UnavailableError):
            open_session(connection)

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("servers", [1, 3])
    def test_a_session_that_leaving_servers_refused_is_opened_at_their_successor(
        self, server: RunningServer, servers: int
    ) -> None:
        successor = int(server.grpc.rpartition(":")[2])
        with leaving(successor, servers) as port, connect(f"grpc:127.0.0.1:{port}") as connection:
            assert add(open_session(connection), 2, 3) == 5

    @pytest.mark.timeout(60)
    def test_a_call_that_leaving_servers_refused_is_made_at_their_successor(self, server: RunningServer) -> None:
        successor = int(server.grpc.rpartition(":")[2])
        with leaving(successor, 3) as port, connect(f"grpc:127.0.0.1:{port}") as connection:
            connection.check()
        observation = pack(SUM.features, {"a": 2, "b": 3, "unknown": [0, 0, 0]})
        with leaving(successor, 3) as port, GrpcConnection(f"127.0.0.1:{port}", 10) as connection:
            answer = connection.evaluate_once(PolicyReference("sum"), SUM.features, observation, SUM.advice)
        assert answer.policy.name == "sum"

    @pytest.mark.timeout(60)
    def test_servers_that_leave_for_ever_refuse_a_session_within_its_time_limit(self) -> None:
        with leaving(0, 1000) as port, connect(f"grpc:127.0.0.1:{port}") as connection, pytest.raises(UnavailableError):
            open_session(connection)


class _TestGrpcWith(TestGrpc):
    serdes: str

    @pytest.fixture
    def connection(self, server: RunningServer) -> Iterator[Connection]:
        connection = GrpcConnection(server.grpc.removeprefix("grpc:"), 10, serdes=self.serdes)
        yield connection
        connection.close()


class TestGrpcWithJson(_TestGrpcWith):
    serdes = "json"


class TestGrpcWithProtobuf(_TestGrpcWith):
    serdes = "protobuf"


class TestInProcess(ConnectionContract):
    @pytest.fixture
    def connection(self, policies: Path) -> Iterator[Connection]:
        connection = connect(f"inprocess:{policies}")
        yield connection
        connection.close()


def test_an_address_says_which_connection_is_meant() -> None:
    kinds = {
        address: type(connect(address)).__name__ for address in ("/tmp/x", "socket:x", "h:1", "unix:/x", "grpc:h:1")
    }
    assert list(kinds.values()) == ["SocketConnection"] * 2 + ["GrpcConnection"] * 3


@pytest.mark.parametrize("module", ["policybridge_client.socket", "policybridge_client.llvm.run"])
def test_what_compilers_wait_for_loads_no_grpc(module: str) -> None:
    program = f"import {module}, sys; sys.exit(any(name in sys.modules for name in ('grpc', 'google.protobuf')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_advice_of_many_elements_comes_whole(server: RunningServer) -> None:
    wide = Signature.of(
        [TensorSpec("a", ElementType.INT64, (70_000,))], TensorSpec("sum", ElementType.INT64, (70_000,))
    )
    with_b = Signature.of([*wide.features.specs, TensorSpec("b", ElementType.INT64)], wide.advice)
    for address in (server.socket, server.grpc):
        connection = connect(address)
        session = connection.open(PolicyReference("sum"), with_b, SessionOptions())
        values = np.arange(70_000)
        advice = session.evaluate(pack(with_b.features, {"a": values, "b": 1}))
        assert (advice["sum"][0] == values + 1).all()
        connection.close()
