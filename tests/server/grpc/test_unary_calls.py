"""Unary calls: requests of a known form are answered as the parser would have them, whatever a client sends."""

import random
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as oip  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.tensor_pb2 import DescribedTensors, EncodedTensors
from policybridge_serdes import ElementType, Layout, TensorSpec, load_serdes, pack
from policybridge_server.bounded import BoundedCache
from policybridge_server.grpc.forms import Forms, spans
from policybridge_server.grpc.http2.headers import HeaderReader
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

EVALUATE = "/policybridge.v1.PolicyService/Evaluate"
INFER = "/inference.GRPCInferenceService/ModelInfer"
FEATURES = Layout.of([TensorSpec("x", ElementType.INT64, (2,)), TensorSpec("on", ElementType.BOOL, (1,))])
DECLARED = """
features = [{name = "x", type = "int64_t", shape = [2]}, {name = "on", type = "bool", shape = [1]}]
advice = {name = "y", type = "int64_t", shape = [1]}
"""

Answer = tuple[object, str | None, bytes]
Call = Callable[[str, bytes], Answer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "sum", answering("int(observation['x'].sum()) if observation['on'][0] else -1"), DECLARED)
    write_python(
        repository,
        "options",
        answering("len(session.options.setdefault('added', 'x' * int(session.options['n'])))"),
        DECLARED,
    )
    # Not of the server, which asks for random numbers when it loads a version.
    asked = "observation['x'].tolist() == [1, 2]"
    waits = "import threading\n\n" + answering(f"{asked} and threading.Event().wait(3) or 1")
    write_python(repository, "waits", waits, DECLARED)
    with running_server(repository, tmp_path_factory.mktemp("s"), "--grpcio", "127.0.0.1:0") as running:
        yield running


def caller(address: str) -> Call:
    """Give raw unary calls: the status, the message and the response's bytes."""
    channel = grpc.insecure_channel(address.removeprefix("grpc:"))

    def call(method: str, request: bytes) -> Answer:
        try:
            response: bytes = channel.unary_unary(method, None, None)(request, timeout=60)
        except grpc.RpcError as error:
            return error.code(), error.details(), b""
        # The order of a message's fields is the server's choice.
        kind = oip.ModelInferResponse if method == INFER else pb.EvaluateResponse
        return grpc.StatusCode.OK, "", kind.FromString(response).SerializeToString(deterministic=True)

    return call


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Call:
    """Ask the transport that knows forms."""
    return caller(server.grpc)


@pytest.fixture(scope="module")
def parsed(server: RunningServer) -> Call:
    """Ask the transport that parses every request."""
    return caller(next(address for address in server.others if address.startswith("grpc:")))


def evaluating(serdes: str, x: tuple[int, int], on: bool = True, policy: str = "sum") -> bytes:
    """Make an EvaluateRequest; with ``serdes`` or, where it is empty, with `tensors`."""
    request = pb.EvaluateRequest(policy=pb.PolicyReference(name=policy))
    data = load_serdes(serdes or "protobuf").encode(pack(FEATURES, {"x": x, "on": [on]}), FEATURES)
    if serdes:
        request.encoded.CopyFrom(EncodedTensors(serdes=serdes, data=data))
    else:
        request.tensors.CopyFrom(DescribedTensors.FromString(data))
    return request.SerializeToString()


def inferring(x: tuple[int, int], on: int = 1, policy: str = "sum", request_id: str = "", **options: str) -> bytes:
    request = oip.ModelInferRequest(model_name=policy, id=request_id)
    request.inputs.add(name="x", datatype="INT64", shape=[2])
    request.inputs.add(name="on", datatype="BOOL", shape=[1])
    request.raw_input_contents.extend([np.array(x, "<i8").tobytes(), bytes([on])])
    for name, value in options.items():
        request.parameters[name].string_param = value
    data: bytes = request.SerializeToString()
    return data


def advice(response: bytes) -> int:
    return int.from_bytes(oip.ModelInferResponse.FromString(response).raw_output_contents[0], "little")


@pytest.mark.parametrize("serdes", ["bitstream", "protobuf", "json", ""])
def test_every_later_evaluate_of_a_form_is_answered_as_the_parser_has_it(call: Call, parsed: Call, serdes: str) -> None:
    for x in ((1, 2), (3, 4), (1, 2), (-(2**62), 5)):
        for on in (True, False):
            request = evaluating(serdes, x, on)
            assert call(EVALUATE, request) == parsed(EVALUATE, request)


@pytest.mark.parametrize("request_id", ["", "7", "42", "ä", "\n\x0b" * 90])
def test_every_later_infer_of_a_form_is_answered_as_the_parser_has_it(
    call: Call, parsed: Call, request_id: str
) -> None:
    for x in ((1, 2), (3, 4), (-1, 0)):
        request = inferring(x, request_id=request_id)
        answer = call(INFER, request)
        assert answer == parsed(INFER, request)
        assert oip.ModelInferResponse.FromString(answer[2]).id == request_id


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (EVALUATE, evaluating("bitstream", (1, 2))),
        (EVALUATE, evaluating("protobuf", (1, 2))),
        (EVALUATE, evaluating("", (1, 2))),
        (INFER, inferring((1, 2))),
        (INFER, inferring((1, 2), request_id="an id")),
    ],
    ids=["bitstream", "protobuf", "tensors", "infer", "infer with an id"],
)
def test_a_request_that_differs_from_a_known_one_anywhere_is_answered_as_the_parser_has_it(
    call: Call, parsed: Call, method: str, request_: bytes
) -> None:
    generator = random.Random(0)
    for position in range(len(request_)):
        call(method, request_)
        changed = bytearray(request_)
        changed[position] ^= 1 << generator.randrange(8)
        assert call(method, bytes(changed)) == parsed(method, bytes(changed)), bytes(changed)
        for other in (
            request_[:position],
            request_[:position] + request_[position + 1 :],
            request_ + request_[position:],
        ):
            assert call(method, other) == parsed(method, other), other


def test_fields_that_come_twice_or_in_another_order_are_merged_as_protobuf_says(call: Call, parsed: Call) -> None:
    first, second = evaluating("bitstream", (1, 2)), evaluating("protobuf", (3, 4), on=False)
    typed, infer = evaluating("", (5, 6)), inferring((7, 8), request_id="a")
    for request in (first + second, second + first, first + typed, typed + first, typed + typed, first + first):
        for _ in range(3):
            assert call(EVALUATE, request) == parsed(EVALUATE, request)
    reordered = b"".join(
        field.SerializeToString()
        for field in (
            oip.ModelInferRequest(raw_input_contents=oip.ModelInferRequest.FromString(infer).raw_input_contents),
            oip.ModelInferRequest(model_name="sum", id="first"),
            oip.ModelInferRequest(id="last", inputs=oip.ModelInferRequest.FromString(infer).inputs),
        )
    )
    for request in (infer + infer, reordered, reordered + infer, infer + reordered):
        for _ in range(3):
            assert call(INFER, request) == parsed(INFER, request)


def test_a_bool_of_a_known_form_is_checked(call: Call) -> None:
    assert advice(call(INFER, inferring((1, 2), on=1))[2]) == 3
    status, message, _ = call(INFER, inferring((1, 2), on=2))
    assert (status, "the byte 0 or 1" in str(message)) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_an_id_that_is_no_text_is_refused_in_a_known_form_too(call: Call, parsed: Call) -> None:
    request = inferring((1, 2), request_id="abc")
    assert call(INFER, request)[0] is grpc.StatusCode.OK
    assert call(INFER, request)[0] is grpc.StatusCode.OK
    wrong = request.replace(b"abc", b"\xff\xfe\xfd")
    assert call(INFER, wrong) == parsed(INFER, wrong)
    assert call(INFER, wrong)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_what_a_policy_does_to_its_options_is_not_seen_by_the_next_request(call: Call) -> None:
    for _ in range(3):
        assert advice(call(INFER, inferring((1, 2), policy="options", n="5"))[2]) == 5
    assert advice(call(INFER, inferring((1, 2), policy="options", n="6"))[2]) == 6


def test_ever_new_forms_change_no_answer(call: Call, parsed: Call) -> None:
    good = inferring((20, 22))
    assert advice(call(INFER, good)[2]) == 42
    for number in range(300):
        assert call(INFER, inferring((number, 1), ignored="x" * number))[0] is grpc.StatusCode.OK
        unknown = inferring((1, 1), policy=f"unknown{number}")
        assert call(INFER, unknown) == parsed(INFER, unknown)
    assert advice(call(INFER, good)[2]) == 42


def test_a_call_whose_deadline_is_over_or_that_is_cancelled_costs_the_others_nothing(server: RunningServer) -> None:
    channel = grpc.insecure_channel(server.grpc.removeprefix("grpc:"))
    evaluate = channel.unary_unary(EVALUATE, None, None)
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as error:
            evaluate(evaluating("bitstream", (1, 2), policy="waits"), timeout=0.2)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        evaluate.future(evaluating("bitstream", (1, 2), policy="waits")).cancel()  # type: ignore[no-untyped-call]
    assert evaluate(evaluating("bitstream", (1, 2)), timeout=60)
    channel.close()


def test_the_number_and_the_size_of_known_forms_are_bounded() -> None:
    def request(number: int) -> bytes:
        return inferring((1, 2), policy=f"p{number}", request_id="x" * (number % 700))

    forms: Forms[int] = Forms()
    for number in range(5000):
        forms.remember(request(number), list(spans(request(number), (7,))), number)
    assert 0 < sum(forms.find(request(number)) is not None for number in range(5000)) <= 512
    large = inferring((1, 2), note="x" * 100_000)
    forms.remember(large, list(spans(large, (7,))), -1)
    assert forms.find(large) is None


def test_a_flood_of_new_keys_does_not_evict_what_is_in_use() -> None:
    cache: BoundedCache[int, str] = BoundedCache(16)
    cache.put(-1, "in use")
    for number in range(1000):
        cache.put(number, "new")
        if number % 10 == 0:
            assert cache.get(-1) == "in use"
    assert sum(1 for _ in cache.entries()) == 16


def test_headers_are_read_anew_after_the_table_has_changed_its_size() -> None:
    reader = HeaderReader()
    read = [
        reader.read(bytes.fromhex(block)).metadata
        for block in ("20", "40811f818f83", "3f1d", "40811f818f83", "be4081278193")
    ]
    assert read == [[], [("a", "b")], [], [("a", "b")], [("a", "b"), ("c", "d")]]
