"""What clients of ML-Compiler-Bridge get over gRPC when there is no advice, or none in time."""

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.conftest import RunningServer, ServerFactory, running_server
from tests.repositories import answering, write_python
from tests.server.mlbridge.mlbridge_clients import (
    OTHERS,
    PASSES,
    PROTOS,
    ask,
    channel,
    counting,
    embedding,
    make_fifo,
    registers,
    reply,
    serving,
)

HANGS = """
class Policy:
    asked = 0
    def evaluate(self, observation, session):
        Policy.asked += 1
        if observation["embedding"][0] == 0:
            open({entered!r}, "w").close()
            open({released!r}).close()
        if observation["embedding"][0] < 0:
            raise ValueError("negative")
        return Policy.asked * 10
"""


class Hanging:
    """A server whose policy says how often it was asked, and hangs on an embedding of 0 until it is released."""

    def __init__(self, factory: ServerFactory, folder: Path, more: str = "") -> None:
        self._entered, self._released = make_fifo(folder, "entered"), make_fifo(folder, "released")
        source = HANGS.format(entered=str(self._entered), released=str(self._released))
        write_python(folder / "repository", "hangs", source)
        toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "hangs"\n{more}\n{OTHERS}'
        self.server = serving(factory, folder / "repository", toml)

    def wait(self) -> None:
        """Wait until it hangs."""
        self._entered.open().close()

    def release(self) -> None:
        self._released.open("w").close()


def test_a_request_sent_again_after_the_deadline_is_not_asked_again(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    hanging = Hanging(server_factory, tmp_path)
    with channel(hanging.server) as connection:
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as failure:
                ask(connection, embedding(0), timeout=0.3)
            assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        hanging.wait()
        hanging.release()
        assert ask(connection, embedding(0)) == 10
        assert ask(connection, embedding(1)) == 20


def test_the_same_observation_after_its_answer_is_a_new_decision(server_factory: ServerFactory, tmp_path: Path) -> None:
    with channel(Hanging(server_factory, tmp_path).server) as connection:
        assert [ask(connection, embedding(1)) for _ in range(2)] == [10, 20]


def test_without_a_fallback_a_failure_is_an_error(server_factory: ServerFactory, tmp_path: Path) -> None:
    with channel(Hanging(server_factory, tmp_path).server) as connection:
        with pytest.raises(grpc.RpcError, match="negative") as failure:
            ask(connection, embedding(-1))
        assert failure.value.code() is grpc.StatusCode.INTERNAL
        assert ask(connection, embedding(1)) == 20


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    """Connect to a policy whose advice for negative embeddings is none, with a fallback of −7."""
    folder, repository = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("repository")
    wrong = "{-1.0: 2**40, -2.0: [1, 2], -3.0: 'x'}"
    given = "observation['embedding'][0]"
    write_python(repository, "picky", answering(f"{{}}['x' * 20000] if {given} == -4 else {wrong}.get({given}, 1)"))
    service = '[mlbridge.services."passsequence.PassSequence"]\nfallback = -7'
    (folder / "config.toml").write_text(f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "picky"\n{service}\n{OTHERS}')
    more = ("--config", folder / "config.toml", "--max-observation-bytes", 100_000)
    with running_server(repository, folder, *more) as server, channel(server) as connection:
        yield connection


@pytest.mark.parametrize(
    ("request_bytes", "why"),
    [
        (embedding(), "ZeroDivisionError|IndexError"),
        (embedding(-1), "range"),
        (embedding(-2), "shape|hold"),
        (embedding(-3), "decision|U1|action"),
        (embedding(-4), "KeyError: 'xxx"),
        (b"\x0a\xff", "not a passsequence.State"),
        (embedding(*range(30000)), "a request of 120004 bytes; at most 100000"),
    ],
    ids=["raises", "out of range", "two numbers", "text", "a long reason", "malformed", "too large"],
)
def test_a_failure_is_answered_with_the_fallback_and_the_reason_beside_it(
    picky: grpc.Channel, request_bytes: bytes, why: str
) -> None:
    call = picky.unary_unary(PASSES, None, None)
    data, details = call.with_call(request_bytes, timeout=60)
    assert reply("passsequence.Pass", data).action == -7
    ((key, reason),) = details.trailing_metadata()
    assert key == "policybridge-fallback-bin"
    assert isinstance(reason, bytes)
    assert re.search(why, reason.decode())
    _, details = call.with_call(embedding(5), timeout=60)
    assert not details.trailing_metadata()


def test_a_failure_of_any_kind_ends_the_session(server_factory: ServerFactory, tmp_path: Path) -> None:
    with channel(counting(server_factory, tmp_path, "fallback = -7")) as connection:
        asked = [embedding(1), embedding(1), b"\x0a\xff", embedding(1)]
        assert [ask(connection, request) for request in asked] == [1, 2, -7, 1]


def test_fallbacks_are_counted_in_the_log(
    server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hanging = Hanging(server_factory, tmp_path, "fallback = -7")
    with channel(hanging.server) as connection:
        assert [ask(connection, embedding(-1)) for _ in range(5)] == [-7] * 5
    logged = re.findall(r"PassSequence/getAdvice: the fallback was the answer (\d+) times", capfd.readouterr().err)
    assert logged == ["1", "2", "4"]


def test_an_unknown_policy_is_a_failure_like_others(server_factory: ServerFactory, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    service = '[mlbridge.services."passsequence.PassSequence"]\nfallback = 3'
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "later"\n{service}\n{OTHERS}'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        assert ask(connection, embedding(1)) == 3
        with pytest.raises(grpc.RpcError, match="later") as failure:
            registers(connection)
        assert failure.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_server_that_shuts_down_is_unavailable_and_not_a_fallback(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    hanging = Hanging(server_factory, tmp_path, "fallback = 3")
    with channel(hanging.server) as connection, ThreadPoolExecutor(1) as threads:
        running = threads.submit(ask, connection, embedding(0))
        hanging.wait()
        hanging.server.process.send_signal(signal.SIGTERM)
        failure = refused(hanging.server)
        hanging.release()
        assert failure.code() is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in str(failure.details())
        assert running.result(20) == 10


def wait_for_drain(connection: grpc.Channel) -> None:
    """Wait until the server takes no new sessions; an attempt to open one would be an episode without an end."""
    health = HealthStub(connection)
    while health.Check(HealthCheckRequest()).status == HealthCheckResponse.SERVING:
        continue


def refused(server: RunningServer) -> grpc.RpcError:
    """Open connections until one is refused."""
    while True:
        with channel(server) as connection:
            try:
                # The policy answers nobody while it hangs, so that an early attempt just waits.
                ask(connection, embedding(1), timeout=0.3)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    return error


def test_a_server_that_shuts_down_waits_for_episodes_that_have_an_end(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = counting(server_factory, tmp_path, "end_advice = 3")
    with channel(server) as connection:
        assert ask(connection, embedding(1)) == 1
        server.process.send_signal(signal.SIGTERM)
        wait_for_drain(connection)
        assert refused(server).code() is grpc.StatusCode.UNAVAILABLE
        assert [ask(connection, embedding(1)) for _ in range(2)] == [2, 3]
    # Much sooner than its grace of a minute.
    assert server.process.wait(60) == 0


def test_a_server_that_shuts_down_does_not_wait_for_episodes_without_an_end(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = counting(server_factory, tmp_path, "", "--grace", 3600)
    with channel(server) as connection:
        assert ask(connection, embedding(1)) == 1
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
