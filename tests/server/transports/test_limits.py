"""What a client's message may hold, and what it is told that goes beyond."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as oip  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_core.errors import NotFoundError, TooLargeError
from policybridge_serdes import ElementType, Outcome, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.repositories import answering, write_python

ECHO = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))
ADVICE = tensor_pb2.TensorSpec(name="advice", type=tensor_pb2.ELEMENT_TYPE_INT64, shape=[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "echo", answering("observation['x']"))
    folder = tmp_path_factory.mktemp("s")
    with running_server(repository, folder, "--ledger", folder / "runs.db") as running:
        yield running


@pytest.fixture
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as made:
        yield made


def refused(*requests: pb.SessionRequest, channel: grpc.Channel) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        list(PolicyServiceStub(channel).Session(iter(requests), timeout=60))
    return f"{raised.value.code().name} {raised.value.details()}"


def opening(*names: str, kind: str = "int64_t") -> pb.SessionRequest:
    number = tensor_pb2.ELEMENT_TYPE_STRING if kind == "string" else tensor_pb2.ELEMENT_TYPE_INT64
    features = [tensor_pb2.TensorSpec(name=name, type=number, shape=[-1]) for name in names]
    signature = tensor_pb2.Signature(features=features, advice=ADVICE)
    return pb.SessionRequest(open=pb.Open(policy=pb.PolicyReference(name="echo"), signature=signature))


def test_an_open_with_too_many_features_is_refused_before_they_are_read(channel: grpc.Channel) -> None:
    said = refused(opening(*(f"f{number}" for number in range(2000))), channel=channel)
    assert said == "RESOURCE_EXHAUSTED 2000 features; at most 1024 are taken (--max-features)"
    said = refused(opening(*(f"f{number}" for number in range(300_000))), channel=channel)
    assert said.startswith("RESOURCE_EXHAUSTED a message of ")
    assert "has more than 16384 fields; send less in one" in said


def test_a_header_line_with_too_many_features_is_refused(server: RunningServer) -> None:
    features = [TensorSpec(f"f{number}", ElementType.INT64) for number in range(14_000)]
    connection = connect(server.socket, timeout=60)
    session = connection.open(PolicyReference("echo"), Signature.of(features, ECHO.advice), SessionOptions())
    with pytest.raises(Exception, match=r"14000 features; at most 1024 are taken \(--max-features\)"):
        session.evaluate(pack(Signature.of(features, ECHO.advice).features, {each.name: 0 for each in features}))
    connection.close()


def test_an_outcome_with_too_many_values_is_refused_on_every_way(server: RunningServer, channel: grpc.Channel) -> None:
    values = {f"v{number}": 1.0 for number in range(3000)}
    told = "an outcome of 3000 values; at most 1024 are taken (--max-outcome-values)"
    outcome = pb.SessionRequest(outcome=pb.Outcome(values=values))
    assert told in refused(opening("x"), outcome, channel=channel)
    with pytest.raises(grpc.RpcError) as raised:
        PolicyServiceStub(channel).ReportOutcome(pb.ReportOutcomeRequest(session_id="s", outcome=outcome.outcome))
    assert told in (raised.value.details() or "")
    peer = connect(server.socket, timeout=60)
    with pytest.raises(Exception, match="an outcome of 3000 values"):
        peer.report_outcome("s", Outcome(values))
    peer.close()


def test_an_outcome_of_millions_of_values_is_refused_before_it_is_parsed(
    channel: grpc.Channel,
) -> None:
    # Made by hand: protobuf itself takes seconds for it.
    one = pb.Outcome(values={"abcdefg": 1.0}).SerializeToString()
    request = pb.ReportOutcomeRequest(session_id="s").SerializeToString()
    payload = one * 1_000_000
    size, length = len(payload), b""
    while size >= 128:
        length, size = length + bytes([size % 128 + 128]), size // 128
    call = channel.unary_unary("/policybridge.v1.PolicyService/ReportOutcome", bytes, bytes)
    with pytest.raises(grpc.RpcError) as raised:
        call(request + b"\x12" + length + bytes([size]) + payload, timeout=60)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "fields; send less in one" in (raised.value.details() or "")


def test_strings_without_number_are_refused_before_they_become_objects(channel: grpc.Channel) -> None:
    count = 400_000
    values = count.to_bytes(8, "little") + bytes(4 * count)
    observation = pb.SessionRequest(observation=pb.Observation(step=1, values=values))
    said = refused(opening("x", kind="string"), observation, channel=channel)
    assert said == (
        "RESOURCE_EXHAUSTED 400000 values as text; at most 262144 are taken (--max-values): send numbers in binary"
    )


def test_json_with_too_many_values_is_refused_before_it_is_read(channel: grpc.Channel) -> None:
    begin = opening("x")
    begin.open.serdes = "json"
    values = json.dumps([{"shape": [400_000], "data": [0] * 400_000}]).encode()
    observation = pb.SessionRequest(observation=pb.Observation(step=1, values=values))
    assert "at most 262144 are taken (--max-values)" in refused(begin, observation, channel=channel)


def test_a_shape_of_very_many_dimensions_is_refused_at_once(channel: grpc.Channel) -> None:
    tensor = oip.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", shape=[2**62] * 200_000)
    request = oip.ModelInferRequest(model_name="echo", inputs=[tensor], raw_input_contents=[b""])
    with pytest.raises(grpc.RpcError) as raised:
        GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    assert "x has 200000 dimensions; at most 31 are possible" in (raised.value.details() or "")


def test_a_hello_that_is_nested_very_deep_is_refused_as_malformed(server: RunningServer) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(30)
        peer.connect(server.socket.removeprefix("socket:"))
        peer.sendall(b'{"policybridge":1,"policy":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
        answer = json.loads(peer.makefile("rb").readline())
    assert answer["error"]["status"] == 3
    assert answer["error"]["message"].startswith("the hello line is malformed")


def test_sessions_beyond_those_of_a_client_or_of_all_are_refused_until_one_ends(
    tmp_path: Path, server_factory: ServerFactory
) -> None:
    write_python(tmp_path, "echo", answering("observation['x']"))
    server = server_factory(tmp_path, "--max-client-sessions", 2, "--max-sessions", 3)
    by_socket, by_grpc = connect(server.socket, timeout=60), connect(server.grpc, timeout=30)
    echo = (PolicyReference("echo"), ECHO, SessionOptions())
    with by_socket, by_grpc:
        first, _ = by_socket.open(*echo), by_socket.open(*echo)
        with pytest.raises(TooLargeError, match=r"2 sessions of this machine are open; .* \(--max-client-sessions\)"):
            by_socket.open(*echo)
        by_grpc.open(*echo)
        with pytest.raises(TooLargeError, match=r"3 sessions are open; no more are taken \(--max-sessions\)"):
            by_grpc.open(*echo)
        first.close()
        with pytest.raises(NotFoundError):
            opened_in_time(by_socket, PolicyReference("nobody"))
        assert opened_in_time(by_socket, PolicyReference("echo")).id


def test_a_client_that_opens_too_many_sessions_in_a_second_is_told_the_limit_and_served_later(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_python(tmp_path, "echo", answering("observation['x']"))
    with connect(server_factory(tmp_path, "--max-client-opens", 1).socket, timeout=60) as connection:
        with pytest.raises(TooLargeError, match=r"opened 1 sessions within a second \(--max-client-opens\)"):
            _open_and_close(connection, 1000)
        assert opened_in_time(connection, PolicyReference("echo")).id


def _open_and_close(connection: Connection, count: int) -> None:
    for _ in range(count):
        connection.open(PolicyReference("echo"), ECHO, SessionOptions()).close()


def opened_in_time(connection: Connection, policy: PolicyReference) -> ClientSession:
    """Open a session as soon as the server has seen that another one is over."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return connection.open(policy, ECHO, SessionOptions())
        except TooLargeError:
            if time.monotonic() > deadline:
                raise
