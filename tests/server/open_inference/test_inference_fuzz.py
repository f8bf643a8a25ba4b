"""Requests that lie, contradict themselves or are garbage cost their sender a clear status, nobody else anything."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tritonclient.grpc import service_pb2 as pb  # type: ignore[import-untyped]

from tests.conftest import RunningServer, running_server
from tests.server.open_inference.inference_policies import KINDS, write_policies
from tests.server.transports.beside import processor_seconds

_SIZES = {
    "BOOL": 1,
    "FP32": 4,
    "FP64": 8,
    **{f"{sign}INT{8 * size}": size for sign in ("", "U") for size in (1, 2, 4, 8)},
}
_CLEAR = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INTERNAL,
}
_ROOM = 200 << 20

Ask = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def ask(server: RunningServer) -> Iterator[Ask]:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
        yield lambda request: call(request, timeout=60)


def most_memory(server: RunningServer) -> int:
    """Give the most bytes that the server ever held."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) << 10


DIMENSIONS = st.one_of(st.integers(0, 4), st.integers(-3, 2**20), st.sampled_from([2**31, 2**40, 2**62, -(2**63)]))
DATATYPES = st.one_of(st.sampled_from([*KINDS.values()]), st.sampled_from(["FP16", "BF16", "", "int64", "INT128"]))
TYPED = st.builds(
    pb.InferTensorContents,
    bool_contents=st.lists(st.booleans(), max_size=2),
    int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    int64_contents=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    uint_contents=st.lists(st.integers(0, 2**32 - 1), max_size=2),
    fp32_contents=st.lists(st.floats(width=32), max_size=2),
    bytes_contents=st.lists(st.binary(max_size=5), max_size=2),
)
INPUTS = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=st.sampled_from(["x", "x", "x", "y", ""]),
    datatype=DATATYPES,
    shape=st.lists(DIMENSIONS, max_size=5),
    contents=st.one_of(st.none(), TYPED),
)
REQUESTS = st.builds(
    pb.ModelInferRequest,
    model_name=st.sampled_from(["counts", "rows", "free", "lengths", "echo-bool", "echo-int8_t", "echo-float"]),
    id=st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    inputs=st.lists(INPUTS, max_size=3),
    raw_input_contents=st.lists(st.binary(max_size=40), max_size=3),
    parameters=st.dictionaries(
        st.sampled_from(["advice", "sequence_id", "sequence_start", "sequence_end", "other"]),
        st.one_of(
            st.builds(pb.InferParameter, int64_param=st.integers(-2, 2)),
            st.builds(pb.InferParameter, string_param=st.sampled_from(["", "{}", "[" * 2000, "\x00"])),
            st.builds(pb.InferParameter, bool_param=st.booleans()),
        ),
        max_size=2,
    ),
)


def check_answered(ask: Ask, request: bytes) -> None:
    """Send it; an answer must be whole, and an error clear."""
    try:
        reply = pb.ModelInferResponse.FromString(ask(request))
    except grpc.RpcError as error:
        if error.code() not in _CLEAR:
            raise
        return
    for output, raw in zip(reply.outputs, reply.raw_output_contents, strict=True):
        if output.datatype != "BYTES":
            assert len(raw) == np.prod(output.shape, dtype=int) * _SIZES[output.datatype]


@settings(max_examples=400, deadline=None)
@given(REQUESTS)
def test_a_request_of_any_fields_gets_a_whole_answer_or_a_clear_status(ask: Ask, request: Any) -> None:
    check_answered(ask, request.SerializeToString())


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.data())
def test_so_does_one_whose_bytes_were_damaged(ask: Ask, request: Any, data: st.DataObject) -> None:
    whole = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    check_answered(ask, bytes(whole[: data.draw(st.integers(0, len(whole)))]))


@pytest.mark.parametrize(
    ("inputs", "raw", "message"),
    [
        ([("x", "INT64", [1])], [b"1234567"], r"x: int64_t\[1\] takes 8 bytes; 7 came"),
        ([("x", "INT64", [1])], [b"12345678", b""], "2 raw contents came for 1 inputs"),
        ([("x", "INT64", [-1])], [b"12345678"], r"no tensor has the shape \[-1\]"),
        ([("x", "INT64", [2**62, 2**62])], [b""], "no tensor has the shape"),
        ([("x", "INT64", [2**27, 0])], [b""], "no tensor has the shape"),
        (
            [("x", "INT64", [1]), ("z", "INT8", [2**30])],
            [b"12345678", b""],
            r"z: int8_t\[1073741824\] takes 1073741824",
        ),
        (
            [("x", "INT64", [200, 1]), ("z", "INT8", [200, 2**30])],
            [bytes(1600), b""],
            r"z: int8_t\[1073741824\], 200 times, takes 214748364800 bytes; 0 came",
        ),
        ([("x", "INT65", [1])], [b"12345678"], "unknown datatype 'INT65'; known are"),
        ([("x", "INT64", [2, 1]), ("z", "INT8", [3])], [bytes(16), b"123"], r"z has the shape \[3\] in a batch of 2"),
    ],
)
def test_a_shape_that_lies_is_refused_by_name(
    ask: Ask, inputs: list[tuple[str, str, list[int]]], raw: list[bytes], message: str
) -> None:
    request = pb.ModelInferRequest(model_name="counts", raw_input_contents=raw)
    for name, datatype, shape in inputs:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
    with pytest.raises(grpc.RpcError, match=message) as failure:
        ask(request.SerializeToString())
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("datatype", "field", "values", "message"),
    [
        ("INT8", "int_contents", [128, 0], r"out of its range"),
        ("INT8", "int64_contents", [1, 2], "INT8 takes `int_contents`; the request has `int64_contents`"),
        ("BYTES", "int_contents", [1, 2], "BYTES takes `bytes_contents`"),
        ("INT8", "int_contents", [1, 2, 3], "takes 2 bytes; 3 came"),
    ],
)
def test_typed_contents_that_do_not_fit_are_refused(
    ask: Ask, datatype: str, field: str, values: list[int], message: str
) -> None:
    request = pb.ModelInferRequest(model_name="echo-int8_t")
    contents = pb.InferTensorContents(**{field: values})
    request.inputs.add(name="x", datatype=datatype, shape=[2], contents=contents)
    with pytest.raises(grpc.RpcError, match=message) as failure:
        ask(request.SerializeToString())
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_raw_and_typed_contents_together_are_refused(ask: Ask) -> None:
    request = pb.ModelInferRequest(model_name="counts", raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="INT64", shape=[1], contents=pb.InferTensorContents(int64_contents=[1]))
    with pytest.raises(grpc.RpcError, match="has `contents` beside `raw_input_contents`; one is right"):
        ask(request.SerializeToString())


def test_bool_bytes_and_texts_are_checked(ask: Ask) -> None:
    for policy, datatype, shape, raw, message in (
        ("echo-bool", "BOOL", [2], b"\x01\x02", "a bool is the byte 0 or 1, not 2"),
        ("echo-bool", "BOOL", [2, 2], b"\x01\x00\x00\x03", "a bool is the byte 0 or 1, not 3"),
        ("lengths", "BYTES", [2], b"\xff\xff\xff\x7fab", "it reaches too far"),
        ("lengths", "BYTES", [2], b"\x01\x00\x00\x00\xff\x00\x00\x00\x00", "is not UTF-8"),
    ):
        request = pb.ModelInferRequest(model_name=policy, raw_input_contents=[raw])
        request.inputs.add(name="x", datatype=datatype, shape=shape)
        with pytest.raises(grpc.RpcError, match=message):
            ask(request.SerializeToString())


@pytest.mark.parametrize(
    ("shape", "code", "message"),
    [
        ([1 << 21], grpc.StatusCode.RESOURCE_EXHAUSTED, r"2097152 values as text; at most 262144 are taken"),
        ([1], grpc.StatusCode.INVALID_ARGUMENT, "x: more elements came than the 1 of its shape"),
    ],
)
def test_millions_of_raw_texts_are_refused_before_they_are_split(
    ask: Ask, server: RunningServer, shape: list[int], code: grpc.StatusCode, message: str
) -> None:
    before = processor_seconds(server.process.pid)
    request = pb.ModelInferRequest(model_name="free", raw_input_contents=[bytes(8 << 20)])
    request.inputs.add(name="x", datatype="BYTES", shape=shape)
    request.parameters["advice"].string_param = '{"name":"advice","type":"int64_t","shape":[1]}'
    with pytest.raises(grpc.RpcError, match=message) as failure:
        ask(request.SerializeToString())
    assert failure.value.code() is code
    # To split them takes several times as long.
    assert processor_seconds(server.process.pid) - before < 1


def test_none_of_it_took_memory_or_the_server(ask: Ask, server: RunningServer) -> None:
    before = most_memory(server)
    for shape in ([2**31], [256, 2**22], [2**20, 2**19], [0, 2**40]):
        request = pb.ModelInferRequest(model_name="free", raw_input_contents=[b""])
        request.inputs.add(name="x", datatype="INT64", shape=shape)
        with pytest.raises(grpc.RpcError):
            ask(request.SerializeToString())
    assert most_memory(server) - before < _ROOM
    request = pb.ModelInferRequest(model_name="counts", raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="INT64", shape=[1])
    assert pb.ModelInferResponse.FromString(ask(request.SerializeToString())).raw_output_contents
