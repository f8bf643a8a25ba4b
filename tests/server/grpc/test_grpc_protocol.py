"""The PolicyService as policy_service.proto describes it, through nothing but generated stubs."""

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec, load_serdes, pack, unpack
from policybridge_serdes.protobuf import signature_to_pb, spec_to_pb
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

SIGNATURE = Signature.of(
    [TensorSpec("x", ElementType.INT64), TensorSpec("y", ElementType.INT64)],
    TensorSpec("decision", ElementType.INT64),
)

_ANY_SIZE = (("grpc.max_receive_message_length", -1),)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    declared = 'advice = {name = "sum", type = "int64_t", shape = [1]}\n[aliases]\nold = 1'
    for version in (1, 2):
        source = answering(f"observation['x'] + observation['y'] + {version - 2} * 1000")
        write_python(repository, "sum", source, declared, version=version)
    write_python(repository, "many", answering("[7] * observation['x'].item()"))
    write_python(repository, "length", answering("len(session.context)"))
    write_python(repository, "options", answering("int(session.options['add']) + int(session.labels['more'])"))
    write_python(
        repository,
        "counts",
        """
        class Policy:
            def __init__(self):
                self.asked = 0

            def evaluate(self, observation, session):
                self.asked += 1
                return self.asked
        """,
    )
    with running_server(repository, tmp_path_factory.mktemp("s"), "--max-observation-bytes", 4096) as running:
        yield running


@pytest.fixture(scope="module")
def stub(server: RunningServer) -> Iterator[PolicyServiceStub]:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:"), _ANY_SIZE) as channel:
        yield PolicyServiceStub(channel)


class Stream:
    """One session, a message at a time."""

    def __init__(self, stub: PolicyServiceStub) -> None:
        self._requests: queue.SimpleQueue[pb.SessionRequest | None] = queue.SimpleQueue()
        self._call: Iterator[pb.SessionResponse] = stub.Session(iter(self._requests.get, None), timeout=60)  # type: ignore[assignment]

    def send(self, **message: object) -> None:
        self._requests.put(pb.SessionRequest(**message))  # type: ignore[arg-type]

    def open(
        self, policy: str, *, serdes: str = "", signature: Signature | None = SIGNATURE, **fields: object
    ) -> pb.Opened:
        given = None if signature is None else signature_to_pb(signature)
        message = pb.Open(policy=pb.PolicyReference(name=policy), signature=given, serdes=serdes, **fields)  # type: ignore[arg-type]
        self.send(open=message)
        return next(self._call).opened

    def observe(self, step: int, x: int = 0, y: int = 0, serdes: str = "bitstream") -> pb.Decision:
        values = load_serdes(serdes).codec(SIGNATURE.features).encode(pack(SIGNATURE.features, {"x": x, "y": y}))
        self.send(observation=pb.Observation(step=step, values=values))
        return self.decision()

    def decision(self) -> pb.Decision:
        return next(self._call).decision

    def advise(self, step: int, x: int = 0, y: int = 0) -> int:
        return int.from_bytes(self.observe(step, x, y).advice, "little", signed=True)

    def close(self) -> None:
        self._requests.put(None)
        assert list(self._call) == []


@pytest.fixture
def stream(stub: PolicyServiceStub) -> Iterator[Stream]:
    opened = Stream(stub)
    yield opened
    opened._requests.put(None)


def test_a_session_answers_each_step_with_the_version_that_it_was_opened_on(stream: Stream) -> None:
    opened = stream.open("sum")
    assert (opened.policy.name, opened.policy.version) == ("sum", 2)
    assert opened.policy.digest.startswith("sha256:")
    decision = stream.observe(1, 40, 2)
    assert (decision.step, decision.version, decision.advice) == (1, 2, (42).to_bytes(8, "little"))
    assert stream.advise(2, 1, 1) == 2
    stream.close()


@pytest.mark.parametrize("serdes", ["bitstream", "json", "protobuf"])
def test_a_session_speaks_the_serdes_that_it_was_opened_with(stream: Stream, serdes: str) -> None:
    stream.open("sum", serdes=serdes)
    advice = load_serdes(serdes).codec(SIGNATURE.advice_layout).decode(stream.observe(1, 40, 2, serdes).advice)
    assert advice["decision"].item() == 42


def test_the_last_step_sent_again_is_answered_without_asking_again(stream: Stream) -> None:
    stream.open("counts")
    first = stream.observe(1)
    assert stream.observe(1) == first
    second = stream.observe(2)
    assert int.from_bytes(second.advice, "little") == int.from_bytes(first.advice, "little") + 1


def test_a_large_answer_is_kept_for_its_step_sent_again_while_its_connection_holds_little(stream: Stream) -> None:
    many = Signature(SIGNATURE.features, TensorSpec("advice", ElementType.INT64, (-1,)))
    stream.open("many", signature=many)
    first = stream.observe(1, 600)
    assert stream.observe(1, 600) == first
    assert len(stream.observe(2, 1 << 20).advice) > 8 << 20
    with pytest.raises(grpc.RpcError, match="step 2 came again; its answer was too large to be kept") as failure:
        stream.observe(2)
    assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("step", [0, 2, 7])
def test_a_step_out_of_order_ends_the_session(stream: Stream, step: int) -> None:
    stream.open("sum")
    with pytest.raises(grpc.RpcError, match=f"step {step} came; 1 is next") as failure:
        stream.observe(step)
    assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_an_observation_before_the_session_is_open_is_refused(stream: Stream) -> None:
    with pytest.raises(grpc.RpcError, match="first message is `open`"):
        stream.observe(1)


def test_a_second_open_is_refused(stream: Stream) -> None:
    stream.open("sum")
    with pytest.raises(grpc.RpcError, match="not open"):
        stream.open("sum")


def test_context_options_and_labels_reach_the_policy(stub: PolicyServiceStub) -> None:
    stream = Stream(stub)
    stream.open("length", context="four")
    assert stream.advise(1) == 4
    stream.send(context=pb.Context(name="longer"))
    assert stream.advise(2) == 6
    stream.close()
    stream = Stream(stub)
    stream.open("options", options={"add": "40"}, labels={"more": "2"})
    assert stream.advise(1) == 42
    stream.close()


def test_features_that_the_policy_lacks_are_ignored_and_named(tmp_path: Path) -> None:
    spec = '{name = "y", type = "int64_t", shape = [1]}'
    write_python(tmp_path, "only", answering("observation['y']"), f"features = [{spec}]")
    with running_server(tmp_path, tmp_path) as server, grpc.insecure_channel(server.grpc[5:]) as channel:
        stream = Stream(PolicyServiceStub(channel))
        assert list(stream.open("only").ignored_features) == ["x"]
        assert stream.advise(1, 7, 9) == 9
        stream.close()


TWO_KINDS = """
class Policy:
    def evaluate(self, observation, session):
        return observation["x"] + observation["y"]

    def pass_choice(self, observation, session):
        return observation["x"] * observation["y"]
"""


def named(advice: str) -> Signature:
    return Signature(SIGNATURE.features, TensorSpec(advice, ElementType.INT64))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_session_changes_the_kind_of_decision_by_a_signature(tmp_path: Path, isolation: str) -> None:
    declared = f'decides = ["decision", "pass_choice"]\nisolation = "{isolation}"'
    write_python(tmp_path, "two-kinds", TWO_KINDS, declared)
    with running_server(tmp_path, tmp_path) as server, grpc.insecure_channel(server.grpc[5:]) as channel:
        stream = Stream(PolicyServiceStub(channel))
        assert list(stream.open("two-kinds").decides) == ["decision", "pass_choice"]
        assert stream.advise(1, 5, 6) == 11
        stream.send(signature=signature_to_pb(named("pass_choice")))
        assert stream.advise(2, 5, 6) == 30
        stream.send(signature=signature_to_pb(SIGNATURE))
        assert stream.advise(3, 5, 6) == 11
        stream.close()


def test_a_session_opens_without_a_signature_and_tells_the_kinds_for_which_one_may_follow(tmp_path: Path) -> None:
    write_python(tmp_path, "one-kind", TWO_KINDS, 'decides = ["pass_choice"]')
    with running_server(tmp_path, tmp_path) as server, grpc.insecure_channel(server.grpc[5:]) as channel:
        stub = PolicyServiceStub(channel)
        stream = Stream(stub)
        assert list(stream.open("one-kind", signature=None).decides) == ["pass_choice"]
        stream.send(signature=signature_to_pb(named("pass_choice")))
        assert stream.advise(1, 5, 6) == 30
        stream.close()
        with pytest.raises(grpc.RpcError, match="decides pass_choice, and not 'decision'") as failure:
            Stream(stub).open("one-kind")
        assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        early = Stream(stub)
        early.open("one-kind", signature=None)
        with pytest.raises(grpc.RpcError, match="came before the signature") as failure:
            early.observe(1)
        assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_signature_with_too_many_features_is_refused_in_the_middle_of_a_session(stream: Stream) -> None:
    stream.open("sum")
    assert stream.advise(1, 1, 1) == 2
    wide = [TensorSpec(f"f{number}", ElementType.INT64, (64,)) for number in range(64)]
    stream.send(signature=signature_to_pb(Signature.of(wide, SIGNATURE.advice)))
    with pytest.raises(grpc.RpcError, match="at most 4096 are taken") as failure:
        stream.observe(2)
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def evaluate_request(**fields: object) -> pb.EvaluateRequest:
    reference = pb.PolicyReference(name="sum")
    return pb.EvaluateRequest(**{"policy": reference, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("serdes", ["bitstream", "json", "protobuf"])
def test_evaluate_answers_in_the_serdes_that_it_was_asked_in(stub: PolicyServiceStub, serdes: str) -> None:
    data = load_serdes(serdes).encode(pack(SIGNATURE.features, {"x": 40, "y": 2}), SIGNATURE.features)
    reply = stub.Evaluate(evaluate_request(encoded=tensor_pb2.EncodedTensors(serdes=serdes, data=data)))
    assert (reply.policy.version, reply.encoded.serdes) == (2, serdes)
    layout, advice = load_serdes(serdes).decode(reply.encoded.data)
    assert unpack(layout, advice)["sum"].tolist() == [42]


def test_evaluate_takes_typed_tensors_too(stub: PolicyServiceStub) -> None:
    data = load_serdes("protobuf").encode(pack(SIGNATURE.features, {"x": 40, "y": 2}), SIGNATURE.features)
    tensors = tensor_pb2.DescribedTensors.FromString(data)
    asked = evaluate_request(tensors=tensors, advice_spec=spec_to_pb(TensorSpec("mine", ElementType.INT64, ())))
    reply = stub.Evaluate(asked)
    layout, advice = load_serdes("protobuf").decode(reply.tensors.SerializeToString())
    assert layout == Layout((TensorSpec("mine", ElementType.INT64, ()),))
    assert unpack(layout, advice)["mine"].item() == 42


def test_evaluate_resolves_versions_and_aliases(stub: PolicyServiceStub) -> None:
    data = load_serdes("json").encode(pack(SIGNATURE.features, {"x": 0, "y": 0}), SIGNATURE.features)
    encoded = tensor_pb2.EncodedTensors(serdes="json", data=data)
    for which in ({"version": 1}, {"alias": "old"}):
        reference = pb.PolicyReference(name="sum", **which)
        assert stub.Evaluate(evaluate_request(policy=reference, encoded=encoded)).policy.version == 1


Make = Callable[[], pb.EvaluateRequest]


def _with_json(data: bytes) -> pb.EvaluateRequest:
    return evaluate_request(encoded=tensor_pb2.EncodedTensors(serdes="json", data=data))


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (evaluate_request, "INVALID_ARGUMENT", "neither `tensors` nor `encoded`"),
        (lambda: _with_json(b"{"), "INVALID_ARGUMENT", "tensors"),
        (lambda: _with_json(b'{"tensors":[],"values":[]}'), "INTERNAL", "no feature 'x'"),
        (
            lambda: evaluate_request(encoded=tensor_pb2.EncodedTensors(serdes="xml")),
            "NOT_FOUND",
            "unknown SerDes 'xml'; there are bitstream, json, protobuf",
        ),
        (lambda: _with_json(bytes(2 << 20)), "RESOURCE_EXHAUSTED", "at most 1052672 are taken"),
    ],
)
def test_an_evaluate_that_cannot_be_served_says_why(
    stub: PolicyServiceStub, make: Make, code: str, message: str
) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        stub.Evaluate(make())
    assert failure.value.code().name == code
    assert message in str(failure.value.details())


def test_a_signature_above_the_servers_limit_is_refused_at_open(stream: Stream) -> None:
    wide = Signature.of([TensorSpec("x", ElementType.INT64, (1000,))], SIGNATURE.advice)
    with pytest.raises(grpc.RpcError, match="observations of 8000 bytes; at most 4096 are taken"):
        stream.open("sum", signature=wide)
