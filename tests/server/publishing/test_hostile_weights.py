"""Weights whose header lies or is very large: refused by the header alone, beside the decisions of others."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as inference  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2, repository_service_pb2
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from policybridge_core.errors import InvalidError
from policybridge_server.backends.weights import read_weights
from tests.conftest import RunningServer, ServerFactory
from tests.repositories import answering, write_python
from tests.server.transports.beside import asking
from tests.server.transports.test_memory import MEGABYTE, resident

PIECE = 1 << 20


def written(entries: Mapping[str, Any], data: bytes = b"") -> bytes:
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + data


def entry(kind: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[RunningServer]:
    write_python(policies, "inline", answering("observation['x']"), "inline = true")
    return server_factory(policies, "--allow-publish")  # type: ignore[return-value]


def published(channel: grpc.Channel, weights: bytes) -> str:
    """Publish weights for the policy `adder`; give what the server says."""
    pieces = (weights[start : start + PIECE] for start in range(0, len(weights), PIECE))
    base = policy_service_pb2.PolicyReference(name="adder")
    requests = [repository_service_pb2.PublishWeightsRequest(base=base)]
    requests += [repository_service_pb2.PublishWeightsRequest(safetensors=piece) for piece in pieces]
    with pytest.raises(grpc.RpcError) as refused:
        RepositoryServiceStub(channel).PublishWeights(iter(requests), timeout=120)
    return str(refused.value.details())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (b"", "0 bytes, and a header of 0"),
        (b"\xff" * 8, "8 bytes, and a header of 18446744073709551615"),
        (written([1]), "Expected `object`"),  # type: ignore[arg-type]
        (written({"x": entry("F9", [1], 0, 4)}, bytes(4)), "'x' is of the unknown type 'F9'"),
        (written({"x": entry("F32", [2], 0, 4)}, bytes(4)), "'x' has the offsets 0 and 4"),
        (written({"x": entry("F32", [1], 4, 8)}, bytes(8)), "'x' has the offsets 4 and 8"),
        (written({"x": entry("F32", [(1 << 62) - 1] * 30_000, 0, 0)}), "Expected `array` of length <= 64"),
        (written({"x": entry("F32", [-1], 0, 4)}, bytes(4)), "Expected `int` >= 0"),
        (written({"x": entry("U8", [1 << 61, 1 << 61], 0, 4)}, bytes(4)), "'x' has the offsets 0 and 4"),
        (written({"x": entry("F32", [1], 0, 4)}, bytes(8)), "8 bytes behind the header, of 4"),
        (written({"x": entry("F32", [1], 0, 4), "y": entry("F32", [1], 0, 4)}, bytes(4)), "has the offsets 0 and 4"),
        (written({"x" * (1 << 20): entry("U8", [0], 0, 0)}), "at most 1048576 are taken"),
    ],
)
def test_a_header_that_lies_is_refused_with_what_is_wrong(weights: bytes, message: str) -> None:
    with pytest.raises(InvalidError) as refused:
        read_weights(weights)
    assert message in str(refused.value)


def test_tensors_are_views_of_the_bytes_in_any_order() -> None:
    entries = {"second": entry("U8", [2], 4, 6), "__metadata__": {"format": "np"}, "first": entry("F32", [1], 0, 4)}
    data = b"\0\0\x80\x3f\1\2"
    read = read_weights(written(entries, data))
    assert {name: (str(each), bytes(each.data)) for name, each in read.items()} == {
        "second": ("U8[2]", data[4:]),
        "first": ("F32[1]", data[:4]),
    }


def test_decisions_go_on_while_large_headers_are_refused_and_nothing_is_kept(server: RunningServer) -> None:
    many = written({f"t{number}": entry("F32", [0], 0, 0) for number in range(400_000)})
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel, asking(server.socket, "inline") as beside:
        published(channel, written({"t": entry("U8", [1], 0, 1)}, b"1"))
        before, held = beside.decisions, resident(server)
        assert "at most 1048576 are taken" in published(channel, many)
        assert "at most 1048576 are taken" in published(channel, written({"__metadata__": {"x": "y" * (26 << 20)}}))
        assert "the base has no tensor" in published(
            channel, written({"t": entry("U8", [200 << 20], 0, 200 << 20)}, bytes(200 << 20))
        )
        assert beside.decisions - before > 100
        assert resident(server) - held < 100 * MEGABYTE


def test_numbers_without_end_in_one_field_are_refused_before_they_are_counted(server: RunningServer) -> None:
    contents = inference.InferTensorContents(int64_contents=[1])
    contents.MergeFromString(b"\x1a\x80\x80\x80\x1e" + bytes(60 << 20))
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", contents=contents)
    request = inference.ModelInferRequest(model_name="inline", inputs=[tensor])
    with (
        grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel,
        pytest.raises(grpc.RpcError, match="int64_contents has more than 524288 numbers"),
    ):
        GRPCInferenceServiceStub(channel).ModelInfer(request)
