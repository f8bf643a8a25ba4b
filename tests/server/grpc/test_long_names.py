"""A name has at most 256 bytes: longer ones are refused before anything reads them, and no error repeats them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as health
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2 as reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tritonclient.grpc import service_pb2 as inference  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2 as policy
from policybridge.v1 import repository_service_pb2 as repository
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from tests.conftest import RunningServer
from tests.repositories import answering, write_python
from tests.server.access.doors import GRPC, Doors, opened
from tests.server.transports.beside import processor_seconds
from tests.server.transports.test_socket_protocol import Peer

NAME = "é" * 150
Method = Callable[[grpc.Channel, str], Any]


def first(answers: Any) -> Any:
    return next(iter(answers))


METHODS: dict[str, Method] = {
    "Check": lambda channel, name: HealthStub(channel).Check(health.HealthCheckRequest(service=name)),
    "ShowPolicy": lambda channel, name: RepositoryServiceStub(channel).ShowPolicy(
        repository.ShowPolicyRequest(policy=name)
    ),
    "SetAlias": lambda channel, name: RepositoryServiceStub(channel).SetAlias(
        repository.SetAliasRequest(policy="one", alias=name, version=1)
    ),
    "Retire": lambda channel, name: RepositoryServiceStub(channel).Retire(repository.RetireRequest(policy=name)),
    "Rollout": lambda channel, name: RepositoryServiceStub(channel).Rollout(
        repository.RolloutRequest(policy="one", alias=name, version=1, share=0.5)
    ),
    "Publish": lambda channel, name: RepositoryServiceStub(channel).Publish(
        iter([repository.PublishRequest(header=repository.PublishHeader(policy=name))])
    ),
    "Evaluate": lambda channel, name: PolicyServiceStub(channel).Evaluate(
        policy.EvaluateRequest(
            policy=policy.PolicyReference(name=name),
            encoded=tensor_pb2.EncodedTensors(serdes="bitstream", data=b'{"tensors":[]}\n'),
        )
    ),
    "Session": lambda channel, name: first(
        PolicyServiceStub(channel).Session(
            iter([policy.SessionRequest(open=policy.Open(policy=policy.PolicyReference(alias=name)))])
        )
    ),
    "ReportOutcome": lambda channel, name: PolicyServiceStub(channel).ReportOutcome(
        policy.ReportOutcomeRequest(session_id=name)
    ),
    "ModelReady": lambda channel, name: GRPCInferenceServiceStub(channel).ModelMetadata(
        inference.ModelMetadataRequest(name=name)
    ),
    "ModelInfer": lambda channel, name: GRPCInferenceServiceStub(channel).ModelInfer(
        inference.ModelInferRequest(model_name=name)
    ),
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    write_python(folder / "policies", "one", answering("1"))
    with opened(folder, "--allow-publish", doors=GRPC) as doors:
        yield doors


@pytest.mark.parametrize("door", GRPC)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_name_of_more_than_256_bytes_is_refused_and_not_repeated(doors: Doors, door: str, method: Method) -> None:
    with grpc.insecure_channel(doors.addresses[door]) as channel, pytest.raises(grpc.RpcError) as refused:
        method(channel, NAME)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 256 bytes" in str(refused.value.details())
    assert "é" not in str(refused.value.details())


def test_a_request_of_names_is_refused_by_its_length_before_it_has_come(doors: Doors) -> None:
    with grpc.insecure_channel(doors.addresses["grpc"]) as channel:
        before = processor_seconds(doors.process.pid)
        for _ in range(20):
            with pytest.raises(grpc.RpcError, match="a message of 62914565 bytes; at most 1048576 are taken"):
                METHODS["ShowPolicy"](channel, "x" * (60 << 20))
        assert processor_seconds(doors.process.pid) - before < 2


def test_a_text_of_more_than_64_kib_is_refused_by_its_length(doors: Doors) -> None:
    asked = reflection.ServerReflectionRequest(file_containing_symbol="x" * 100_000)
    wanted = inference.ModelInferRequest(
        model_name="one", inputs=[inference.ModelInferRequest.InferInputTensor(name="x" * 300_000)]
    )
    with grpc.insecure_channel(doors.addresses["grpc"]) as channel:
        with pytest.raises(grpc.RpcError, match="is a text of 100000 bytes; at most 65536 are taken"):
            first(ServerReflectionStub(channel).ServerReflectionInfo(iter([asked])))
        with pytest.raises(grpc.RpcError, match="is a text of 300000 bytes; at most 65536 are taken"):
            GRPCInferenceServiceStub(channel).ModelInfer(wanted)


@pytest.mark.parametrize("line", ['{"policybridge":1,"policy":"%s"}', '{"policybridge":1,"policy":"one","alias":"%s"}'])
def test_a_hello_with_a_long_name_is_refused_and_does_not_repeat_it(
    server_factory: Callable[..., RunningServer], tmp_path: Path, line: str
) -> None:
    write_python(tmp_path, "one", answering("1"))
    peer = Peer(server_factory(tmp_path))
    peer.send((line % ("é" * 300_000) + "\n").encode())
    error = peer.last_line()
    assert "length <= 256" in error
    assert "é" not in error
    peer.file.close()
    peer.socket.close()
