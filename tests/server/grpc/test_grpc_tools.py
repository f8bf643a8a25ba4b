"""The server among gRPC's own tools: health, reflection, channelz, rich errors, pings, compression, limits."""

import queue
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.connection import connect
from policybridge_serdes import ElementType, Layout, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_serdes.protobuf import ProtobufSerDes, spec_to_pb
from tests.repositories import answering, write_python
from tests.serving import serving

ADVICE = TensorSpec("advice", ElementType.INT64)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
LIMIT = 50_000


def write_policies(repository: Path) -> None:
    write_python(repository, "sum", answering("observation['x'].sum()"))
    write_python(repository, "loud", answering("{}['é' * 100_000]"))
    write_python(repository, "broken", "import nothing_of_this_name")


@pytest.fixture(scope="module", params=["--grpc", "--grpcio"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve by either gRPC server."""
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    arguments = ("--repository", repository, "--allow-python", "--max-message-bytes", LIMIT)
    with serving(*arguments, request.param, "127.0.0.1:0") as (_, address):
        yield address.removeprefix("grpc:")


@pytest.fixture(scope="module")
def channel(target: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target) as opened:
        yield opened


def evaluate(channel: grpc.Channel, policy: str = "sum", size: int = 3, **options: Any) -> int:
    """Ask for the sum of so many ones."""
    layout, serdes = Layout((TensorSpec("x", ElementType.INT64, (size,)),)), ProtobufSerDes()
    tensors = tensor_pb2.DescribedTensors.FromString(serdes.encode(pack(layout, {"x": [1] * size}), layout))
    request = pb.EvaluateRequest(
        policy=pb.PolicyReference(name=policy), tensors=tensors, advice_spec=spec_to_pb(ADVICE)
    )
    reply = PolicyServiceStub(channel).Evaluate(request, timeout=60, **options)
    return int.from_bytes(reply.tensors.values.data[0], "little")


def check(channel: grpc.Channel, name: str) -> int:
    status: int = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name)).status
    return status


def watch(channel: grpc.Channel, name: str) -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)


@pytest.mark.parametrize(
    ("name", "status"),
    [("", SERVING), ("sum", SERVING), ("broken", NOT_SERVING), ("policybridge.v1.PolicyService", SERVING)],
)
def test_health_is_told_of_the_server_of_each_policy_and_of_each_service(
    channel: grpc.Channel, name: str, status: int
) -> None:
    assert check(channel, name) == status
    listed = health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest()).statuses
    assert listed[name].status == status


def test_health_of_what_there_is_not_is_not_found(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError, match="no policy or service 'nothing'") as failure:
        check(channel, "nothing")
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("way", ["--grpc", "--grpcio"])
def test_whoever_watches_is_told_of_new_policies_and_of_the_drain(way: str, tmp_path: Path) -> None:
    write_policies(tmp_path / "all")
    shutil.copytree(tmp_path / "all" / "sum", tmp_path / "served" / "first")
    arguments = ("--repository", tmp_path / "served", "--allow-python", way, "127.0.0.1:0")
    with serving(*arguments) as (process, address), grpc.insecure_channel(address.removeprefix("grpc:")) as channel:
        new, server = watch(channel, "new"), watch(channel, "")
        assert next(new).status == UNKNOWN
        assert next(server).status == SERVING
        shutil.copytree(tmp_path / "all" / "sum", tmp_path / "served" / "new")
        # A policy that is there without a version yet does not serve.
        assert next(status for status in (update.status for update in new) if status != NOT_SERVING) == SERVING
        signature = Signature.of([TensorSpec("x", ElementType.INT64)], ADVICE)
        with_session = connect(address, timeout=60).open(PolicyReference("first"), signature, SessionOptions())
        process.terminate()
        assert next(server).status == NOT_SERVING
        assert check(channel, "first") == NOT_SERVING
        assert with_session.evaluate(pack(signature.features, {"x": 7}))["advice"].item() == 7
        with_session.close()
        assert process.wait(60) == 0


def test_reflection_names_the_services_and_describes_their_messages(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert set(database.get_services()) >= {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
        "policybridge.v1.PolicyService",
        "policybridge.v1.RepositoryService",
    }
    pool = DescriptorPool(database)
    methods = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name
    assert methods["ModelInfer"].input_type.fields_by_name["raw_input_contents"].number == 7
    assert pool.FindMessageTypeByName("policybridge.v1.Decision").fields_by_name["log_probability"].number == 4


def test_channelz_counts_the_calls_of_grpcs_own_server(tmp_path: Path) -> None:
    write_policies(tmp_path)
    arguments = ("--repository", tmp_path, "--allow-python", "--grpcio", "127.0.0.1:0")
    with serving(*arguments) as (_, address), grpc.insecure_channel(address.removeprefix("grpc:")) as channel:
        for _ in range(3):
            evaluate(channel)
        stub = channelz_pb2_grpc.ChannelzStub(channel)
        (server,) = stub.GetServers(channelz_pb2.GetServersRequest(start_server_id=0)).server
        assert server.data.calls_started >= 3
        assert server.listen_socket


def details(error: grpc.RpcError) -> tuple[Any, list[Any]]:
    """Give the google.rpc.Status of an error, and what it holds."""
    status = rpc_status.from_call(cast("grpc.Call", error))
    assert status is not None
    unpacked = []
    for detail in status.details:
        kind = getattr(error_details_pb2, detail.type_url.rpartition(".")[2])
        unpacked.append(kind.FromString(detail.value))
    return status, unpacked


def test_an_error_carries_its_reason_for_programs(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        evaluate(channel, "nothing")
    status, (info,) = details(failure.value)
    assert (status.code, status.message) == (5, failure.value.details())
    assert (info.reason, info.domain) == ("NOT_FOUND", "policybridge")


def test_an_invalid_request_carries_what_is_wrong_with_it(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        PolicyServiceStub(channel).Evaluate(pb.EvaluateRequest(policy=pb.PolicyReference(name="sum")))
    _, (info, request) = details(failure.value)
    assert info.reason == "INVALID"
    assert request.field_violations[0].description == failure.value.details()


def test_a_field_that_is_wrong_is_named(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
    with pytest.raises(grpc.RpcError) as failure:
        call(b"", timeout=60)
    _, (info, request) = details(failure.value)
    assert info.reason == "INVALID"
    assert [violation.field for violation in request.field_violations] == ["model_name"]


def test_a_request_that_is_no_message_is_invalid(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
    with pytest.raises(grpc.RpcError) as failure:
        call(b"\xff\xff\xff", timeout=60)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_error_whose_message_is_too_long_for_a_client_is_cut(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError, match="the policy failed: KeyError: 'ééé") as failure:
        evaluate(channel, "loud")
    assert failure.value.code() is grpc.StatusCode.INTERNAL
    assert str(failure.value.details()).endswith("ééé …")


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_taken(channel: grpc.Channel, compression: grpc.Compression) -> None:
    assert evaluate(channel, size=2000, compression=compression) == 2000


def test_a_message_above_the_operators_limit_is_refused_also_compressed(channel: grpc.Channel) -> None:
    assert evaluate(channel, size=LIMIT // 8 - 100) == LIMIT // 8 - 100
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        with pytest.raises(grpc.RpcError) as failure:
            evaluate(channel, size=LIMIT // 8, compression=compression)
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_pings_of_a_client_that_asks_nothing_are_tolerated(target: str) -> None:
    options = [
        ("grpc.keepalive_time_ms", 150),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
    with grpc.insecure_channel(target, options) as channel:
        assert evaluate(channel) == 3
        channel.subscribe(states.put)
        assert states.get(timeout=60) is grpc.ChannelConnectivity.READY
        with pytest.raises(queue.Empty):
            # gRPC sends one each second, whatever is asked for, and by itself answers the fourth with GOAWAY.
            states.get(timeout=3.5)
        assert evaluate(channel) == 3


@pytest.mark.parametrize("option", ["--grpc", "--grpcio"])
def test_only_the_services_that_the_operator_names_are_served(option: str, tmp_path: Path) -> None:
    write_policies(tmp_path)
    arguments = ("--repository", tmp_path, "--allow-python", "--grpc-service", "policy", option, "127.0.0.1:0")
    with serving(*arguments) as (_, address), grpc.insecure_channel(address.removeprefix("grpc:")) as channel:
        assert evaluate(channel) == 3
        with pytest.raises(grpc.RpcError) as raised:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert cast("grpc.Call", raised.value).code() == grpc.StatusCode.UNIMPLEMENTED
