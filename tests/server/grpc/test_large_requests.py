"""Requests of megabytes, which threads of the server read: answered as others are, and not kept afterwards."""

import subprocess
import sys
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as inference  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_serdes import ElementType, Layout, TensorSpec, load_serdes, pack
from policybridge_serdes.protobuf import spec_to_pb
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

COUNT = 400_000
SPEC = TensorSpec("x", ElementType.INT64, (COUNT,))

KEPT = """
import tracemalloc
from policybridge.inference.inference_service_pb2 import ModelInferRequest
from policybridge_server.open_inference.request import RequestReader

reader = RequestReader()
tracemalloc.start()
for count in range(60_000, 60_060):
    tensor = ModelInferRequest.InferInputTensor(name="x", datatype="INT64", shape=[count])
    values = count.to_bytes(8, "little") * count
    request = ModelInferRequest(model_name="declared", inputs=[tensor], raw_input_contents=[values])
    assert reader.read(request.SerializeToString()).payloads == [values]
del tensor, values, request
print(tracemalloc.get_traced_memory()[0])
"""
"""Prints the bytes that stay allocated after 60 requests of half a megabyte, each of another size."""

READ = """
import tracemalloc
from policybridge.inference.inference_service_pb2 import ModelInferRequest
from policybridge_server.open_inference.request import parsed_request

values = bytes(range(256)) * (1 << 15)
tensor = ModelInferRequest.InferInputTensor(name="x", datatype="UINT8", shape=[len(values)])
data = ModelInferRequest(model_name="declared", inputs=[tensor], raw_input_contents=[values]).SerializeToString()
tracemalloc.start()
read = parsed_request(data)
peak = tracemalloc.get_traced_memory()[1]
assert list(read.payloads) == [values]
print(peak)
"""
"""Prints the bytes that are allocated to read a request of 8 MiB."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    repository = tmp_path_factory.mktemp("policies")
    for name, more in (("twice", ""), ("declared", 'advice = {name = "x", type = "int64_t", shape = [-1]}')):
        write_python(repository, name, answering("observation['x'] * 2"), f"inline = true\n{more}")
    with (
        running_server(repository, tmp_path_factory.mktemp("s")) as server,
        grpc.insecure_channel(_port(server)) as made,
    ):
        yield made


def _port(server: RunningServer) -> str:
    return server.grpc.removeprefix("grpc:")


def numbers(first: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(first, first + COUNT, dtype=np.int64)


@pytest.mark.parametrize("serdes", ["protobuf", "bitstream"])
def test_a_large_observation_in_one_call_gets_the_advice_for_its_own_values(channel: grpc.Channel, serdes: str) -> None:
    layout = Layout.of([SPEC])
    for first in (1, 7, 1):
        data = load_serdes(serdes).encode(pack(layout, {"x": numbers(first)}), layout)
        request = pb.EvaluateRequest(policy=pb.PolicyReference(name="twice"), advice_spec=spec_to_pb(SPEC))
        request.encoded.serdes, request.encoded.data = serdes, data
        answer = PolicyServiceStub(channel).Evaluate(request, timeout=60)
        _, advice = load_serdes(serdes).decode(answer.encoded.data)
        assert np.array_equal(advice["x"][0], 2 * numbers(first))


def asking(first: int, count: int = COUNT) -> inference.ModelInferRequest:
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", shape=[count])
    values = numbers(first)[:count].tobytes()
    return inference.ModelInferRequest(model_name="declared", inputs=[tensor], raw_input_contents=[values])


def test_large_requests_of_triton_s_clients_are_answered_alone_and_in_a_stream(channel: grpc.Channel) -> None:
    stub = GRPCInferenceServiceStub(channel)
    for first in (1, 7, 1):
        answer = stub.ModelInfer(asking(first), timeout=60)
        assert answer.raw_output_contents[0] == (2 * numbers(first)).tobytes()
    streamed = list(stub.ModelStreamInfer(iter([asking(3), asking(4, 10), asking(5)]), timeout=60))
    wanted = [2 * numbers(3), 2 * numbers(4)[:10], 2 * numbers(5)]
    found = [each.infer_response.raw_output_contents[0] for each in streamed]
    assert found == [each.tobytes() for each in wanted]


def test_a_large_request_that_is_none_fails_with_a_reason(channel: grpc.Channel) -> None:
    for method in ("policybridge.v1.PolicyService/Evaluate", "inference.GRPCInferenceService/ModelInfer"):
        call = channel.unary_unary(f"/{method}", None, None)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\x0a\xff\xff\xff\xff\x07" + bytes(2 << 20), timeout=60)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_values_of_requests_are_not_kept_with_their_forms() -> None:
    # In a process of its own: the server's stubs and Triton's cannot be loaded together.
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 8 << 20


def test_the_contents_of_a_large_request_are_not_copied() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 1 << 20
