"""One observation of some tens of MiB: at every door the policy is asked with these values, and the ledger has them."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as inference  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.connection import connect
from policybridge_serdes import (
    ElementType,
    Layout,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    load_serdes,
    pack,
)
from policybridge_serdes.protobuf import signature_to_pb, spec_to_pb
from policybridge_server.loop import Loop
from policybridge_server.transports.channel import SocketChannel
from tests.conftest import running_server
from tests.repositories import answering, write_python
from tests.server.ledger.conftest import Recording

COUNT = 3 << 20
"""Numbers, of 24 MiB."""

NUMBERS = np.arange(COUNT, dtype=np.int64) * 2654435761
SPEC = TensorSpec("x", ElementType.INT64, (COUNT,))
ON = TensorSpec("on", ElementType.BOOL, (5,))
VARYING = TensorSpec("x", ElementType.INT64, (-1,))
ADVICE = TensorSpec("advice", ElementType.INT64, (1,))
POLICY = "observation['x'].reshape(-1)[[0, 1, -1]].sum() + observation['x'].size"
ANSWER = int(NUMBERS[[0, 1, -1]].sum() + COUNT)


class Silent:
    """Takes the events of a channel, and does nothing."""

    def ready(self, events: int) -> None: ...


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    with TemporaryDirectory(prefix="pb-") as name:
        repository, ledger = Path(name) / "policies", Path(name) / "ledger.db"
        advice = 'inline = true\nadvice = {name = "advice", type = "int64_t", shape = [1]}'
        write_python(repository, "sums", answering(POLICY), advice)
        write_python(repository, "measures", answering("len(observation['x'].reshape(-1)[0])"), advice)
        with running_server(repository, Path(name), "--ledger", ledger, "--http", "127.0.0.1:0") as server:
            yield Recording(server, ledger)


@pytest.fixture(scope="module")
def channel(recording: Recording) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(recording.server.grpc.removeprefix("grpc:")) as made:
        yield made


@pytest.mark.parametrize("specs", [(SPEC,), (ON, SPEC), (VARYING,)], ids=["alone", "second", "varying"])
@pytest.mark.parametrize("door", ["socket", "grpc"])
def test_a_session_s_large_observation_is_answered_and_recorded(
    recording: Recording, door: str, specs: tuple[TensorSpec, ...]
) -> None:
    layout = Layout.of(specs)
    given: dict[str, Any] = {"x": NUMBERS, "on": [True, False, False, True, True]}
    values = pack(layout, {name: given[name] for name in layout.by_name})
    session = connect(getattr(recording.server, door)).open(
        PolicyReference("sums"), Signature(layout, ADVICE), SessionOptions()
    )
    assert session.evaluate(values)["advice"][0] == ANSWER
    session.report(Outcome({"text": 1.0}, "ok"))
    with recording.reader() as reader:
        (batch,) = reader.trajectory(reader.session(session.id)).batches
    session.close()
    for name in layout.by_name:
        assert np.array_equal(batch.observations[name][0], values[name][0])
    assert batch.advices["advice"][0] == ANSWER


def test_a_session_over_grpc_takes_a_large_observation_as_protobuf_or_json_too(channel: grpc.Channel) -> None:
    text = TensorSpec("x", ElementType.BYTES, (1,))
    cases: dict[str, tuple[Layout, dict[str, Any]]] = {
        "protobuf": (Layout.of([ON, SPEC]), {"on": [True] * 5, "x": NUMBERS}),
        "json": (Layout.of([text]), {"x": [b"0123456789" * 300_000]}),
    }
    for serdes, (layout, tensors) in cases.items():
        policy = "sums" if serdes == "protobuf" else "measures"
        signature = signature_to_pb(Signature(layout, ADVICE))
        begin = pb.Open(policy=pb.PolicyReference(name=policy), serdes=serdes, signature=signature)
        values = load_serdes(serdes).codec(layout).encode(pack(layout, tensors))
        asked = pb.Observation(step=1, values=values)
        requests = [pb.SessionRequest(open=begin), pb.SessionRequest(observation=asked)]
        _, answer = PolicyServiceStub(channel).Session(iter(requests), timeout=120)
        advice = load_serdes(serdes).codec(Layout.of([ADVICE])).decode(answer.decision.advice)["advice"][0]
        assert advice == (ANSWER if serdes == "protobuf" else 3_000_000)


def test_a_large_observation_that_is_not_the_session_s_fails_with_the_reason(recording: Recording) -> None:
    with grpc.insecure_channel(recording.server.grpc.removeprefix("grpc:")) as channel:
        signature = signature_to_pb(Signature(Layout.of([SPEC]), ADVICE))
        begin = pb.SessionRequest(open=pb.Open(policy=pb.PolicyReference(name="sums"), signature=signature))
        for values, step, code in (
            (bytes(8 * COUNT - 1), 1, grpc.StatusCode.INVALID_ARGUMENT),
            (bytes(8 * COUNT), 2, grpc.StatusCode.FAILED_PRECONDITION),
        ):
            asked = pb.SessionRequest(observation=pb.Observation(step=step, values=values))
            with pytest.raises(grpc.RpcError) as caught:
                list(PolicyServiceStub(channel).Session(iter([begin, asked]), timeout=120))
            assert caught.value.code() == code, caught.value


def test_a_large_message_that_is_two_kinds_at_once_is_refused(recording: Recording) -> None:
    asked = pb.SessionRequest(observation=pb.Observation(step=1, values=bytes(2 << 20))).SerializeToString()
    other = pb.SessionRequest(context=pb.Context(name="f")).SerializeToString()
    begin = pb.SessionRequest(open=pb.Open(policy=pb.PolicyReference(name="sums"))).SerializeToString()
    with grpc.insecure_channel(recording.server.grpc.removeprefix("grpc:")) as channel:
        call = channel.stream_stream("/policybridge.v1.PolicyService/Session", None, None)
        with pytest.raises(grpc.RpcError, match="one of its kinds"):
            list(call(iter([begin, asked + other]), timeout=60))


def test_evaluate_answers_a_large_observation_of_typed_tensors(channel: grpc.Channel) -> None:
    layout = Layout.of([ON, SPEC])
    values = pack(layout, {"on": [True] * 5, "x": NUMBERS})
    request = pb.EvaluateRequest(policy=pb.PolicyReference(name="sums"), advice_spec=spec_to_pb(ADVICE))
    # Before it another observation, which does not count: the last one of the two does.
    request.encoded.serdes, request.encoded.data = "bitstream", bytes(2 << 20)
    head = request.SerializeToString()
    request.tensors.ParseFromString(load_serdes("protobuf").encode(values, layout))
    for data in (request.SerializeToString(), head + request.SerializeToString()):
        answer = channel.unary_unary("/policybridge.v1.PolicyService/Evaluate", None, None)(data, timeout=120)
        found = pb.EvaluateResponse.FromString(answer).tensors.SerializeToString()
        assert load_serdes("protobuf").decode(found)[1]["advice"][0] == ANSWER


@pytest.mark.parametrize("serdes", ["bitstream", "protobuf"])
def test_evaluate_answers_a_large_encoded_observation(channel: grpc.Channel, serdes: str) -> None:
    layout = Layout.of([VARYING])
    data = load_serdes(serdes).encode(pack(layout, {"x": NUMBERS}), layout)
    request = pb.EvaluateRequest(policy=pb.PolicyReference(name="sums"), advice_spec=spec_to_pb(ADVICE))
    request.encoded.serdes, request.encoded.data = serdes, data
    answer = PolicyServiceStub(channel).Evaluate(request, timeout=120)
    assert load_serdes(serdes).decode(answer.encoded.data)[1]["advice"][0] == ANSWER


def test_a_large_request_without_an_observation_is_refused(channel: grpc.Channel) -> None:
    data = pb.EvaluateRequest(policy=pb.PolicyReference(name="sums")).SerializeToString()
    unknown = b"\x7a\x80\x80\x80\x01" + bytes(2 << 20)
    with pytest.raises(grpc.RpcError, match="there is no observation"):
        channel.unary_unary("/policybridge.v1.PolicyService/Evaluate", None, None)(data + unknown, timeout=60)


def test_model_infer_answers_a_large_observation(channel: grpc.Channel) -> None:
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", shape=[COUNT])
    request = inference.ModelInferRequest(model_name="sums", inputs=[tensor], raw_input_contents=[NUMBERS.tobytes()])
    answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=120)
    assert np.frombuffer(answer.raw_output_contents[0], np.int64).tolist() == [ANSWER]


def test_a_channel_reads_in_bulk_only_what_its_handler_expects() -> None:
    ours, theirs = socket.socketpair()
    loop = Loop(lambda: 0)
    with closing(theirs), closing(loop):
        ours.setblocking(False)
        channel = SocketChannel(ours, loop, Silent())
        theirs.sendall(bytes(64 << 10))
        sizes = []
        for expected in (0, 0, 20_000, 1 << 30):
            channel.expected = expected
            sizes.append(len(channel.receive() or b""))
        channel.close()
    assert sizes == [1 << 14, 1 << 14, 20_000, (64 << 10) - (2 << 14) - 20_000]


def test_http_answers_a_large_observation_in_binary(recording: Recording) -> None:
    address = next(each for each in recording.server.others if each.startswith("http:"))
    tensor = {"name": "x", "datatype": "INT64", "shape": [COUNT], "parameters": {"binary_data_size": 8 * COUNT}}
    head = json.dumps({"inputs": [tensor]}).encode()
    with closing(http.client.HTTPConnection(address.removeprefix("http:"), timeout=120)) as connection:
        headers = {"Inference-Header-Content-Length": str(len(head))}
        connection.request("POST", "/v2/models/sums/infer", head + NUMBERS.tobytes(), headers)
        answer = json.loads(connection.getresponse().read())
    assert answer["outputs"][0]["data"] == [ANSWER]
