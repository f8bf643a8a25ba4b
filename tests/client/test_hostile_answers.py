"""Answers that no server and no compiler of ours would send: an error of ours, and the session is over."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_client import connect
from policybridge_client.contract import ClientSession, FormSession
from policybridge_client.llvm.growth import Growth
from policybridge_client.llvm.inliner import ComputedDefaults, Defaults, SentDefaults
from policybridge_client.llvm.responder import Patience, Responder
from policybridge_client.llvm.statistics import CompilationStatistics
from policybridge_client.llvm.tasks import EVICT, INLINE, Task
from policybridge_core.errors import DeadlineError, InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import (
    ElementType,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    pack,
    zeros,
)
from policybridge_serdes.interactive import Header
from tests.client.peers import OPENED, Peer
from tests.fuzzing.clients import Advising, GrpcPeer
from tests.peers.endless import endless_form

X = TensorSpec("x", ElementType.INT64)
SIGNATURE = Signature.of([X], TensorSpec("advice", ElementType.FLOAT, (-1, 2)))
VERSION = pb.PolicyVersion(name="p", version=1)
MESSAGES = {
    "opened": pb.SessionResponse(opened=pb.Opened(session_id="s", policy=VERSION)),
    "decision": pb.SessionResponse(decision=pb.Decision(step=1, advice=b"\1" + bytes(7))),
    "nothing": pb.SessionResponse(),
}


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as folder:
        yield Path(folder) / "s"


def opened(address: str) -> ClientSession:
    return connect(address, timeout=60).open(PolicyReference("p"), SIGNATURE, SessionOptions())


def decide(session: ClientSession) -> object:
    return session.evaluate(pack(SIGNATURE.features, {"x": 1}))


@contextmanager
def answering(place: Path, *names: str) -> Iterator[str]:
    with ThreadPoolExecutor(4) as pool:
        peer, server = GrpcPeer(), grpc.server(pool)
        peer.answers = [MESSAGES[name].SerializeToString() for name in names]
        server.add_generic_rpc_handlers([peer])
        server.add_insecure_port(f"unix:{place}")
        server.start()
        try:
            yield f"grpc:unix:{place}"
        finally:
            server.stop(None)


DEEP = b'{"x":' + b"[" * 100_000 + b"\n"


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b'{"session":"","policy":"p"}\n',
        b'{"session":"s","version":1}\n',
        b'{"session":"s","policy":"p","version":%d}\n' % 10**30,
        DEEP,
    ],
    ids=["nothing", "no session", "no policy", "a large version", "deep"],
)
def test_a_socket_that_names_no_session_or_no_policy_is_refused(place: Path, line: bytes) -> None:
    peer = Peer(place, (line,), (), 0)
    with pytest.raises(InvalidError, match="does not follow the protocol"):
        opened(f"socket:{place}")
    peer.close()


@pytest.mark.parametrize("line", [b"{}\n", b'{"recorded":false}\n', DEEP], ids=["nothing", "false", "deep"])
def test_an_outcome_is_recorded_over_the_socket_only_where_the_answer_says_so(place: Path, line: bytes) -> None:
    peer = Peer(place, (OPENED,), (b"\0" + line,), 1)
    session = opened(f"socket:{place}")
    with pytest.raises(InvalidError, match="does not follow the protocol"):
        session.report(Outcome({"size": 1.0}))
    with pytest.raises(PreconditionError, match="the session is over"):
        decide(session)
    peer.close()


def test_an_outcome_of_another_session_is_recorded_only_where_the_answer_says_so(place: Path) -> None:
    peer = Peer(place, (b'{"recorded":false}\n',), (), 0)
    with pytest.raises(InvalidError, match="does not follow the protocol"):
        connect(f"socket:{place}").report_outcome("s", Outcome({}))
    peer.close()


@pytest.mark.parametrize("name", ["decision", "nothing"])
def test_a_grpc_server_whose_first_answer_is_another_is_refused(place: Path, name: str) -> None:
    with answering(place, name) as address, pytest.raises(InvalidError, match=f"it is {name}, and Opened with"):
        opened(address)


def test_an_outcome_is_recorded_over_grpc_only_where_the_answer_says_so(place: Path) -> None:
    with answering(place, "opened", "decision") as address:
        session = opened(address)
        with pytest.raises(InvalidError, match="it is decision, and OutcomeRecorded is right"):
            session.report(Outcome({}))


def test_a_grpc_session_is_over_after_an_advice_that_cannot_be_read(place: Path) -> None:
    with answering(place, "opened", "decision", "decision") as address:
        session = opened(address)
        with pytest.raises(InvalidError):
            decide(session)
        with pytest.raises(PreconditionError, match="the session is over"):
            decide(session)


def test_a_form_that_does_not_end_is_given_up_after_the_time_out() -> None:
    with endless_form() as address:
        session = connect(address, timeout=1).open(PolicyReference("p"), SIGNATURE, SessionOptions(evaluates=True))
        assert isinstance(session, FormSession)
        with pytest.raises(DeadlineError, match="within 1 s"):
            session.form(session.forms[""])


@pytest.mark.parametrize(("form", "answer"), [("json", b'{"out":[1.0]}'), ("bytes", bytes(4))])
def test_an_advice_of_a_pipe_whose_elements_fill_no_row_is_refused(place: Path, form: str, answer: bytes) -> None:
    for end in (".in", ".out"):
        os.mkfifo(f"{place}{end}")
    asked, replies = os.open(f"{place}.out", os.O_RDWR), os.open(f"{place}.in", os.O_RDWR)
    os.write(replies, len(answer).to_bytes(8, "little") + answer)
    session = opened(f"mlbridge-pipe:{place}:{form}")
    with pytest.raises(InvalidError, match=r"1 elements came where advice: float\[-1, 2\] was asked for"):
        decide(session)
    os.close(asked)
    os.close(replies)


def test_a_bool_of_a_pipe_is_the_byte_0_or_1(place: Path) -> None:
    for end in (".in", ".out"):
        os.mkfifo(f"{place}{end}")
    asked, replies = os.open(f"{place}.out", os.O_RDWR), os.open(f"{place}.in", os.O_RDWR)
    os.write(replies, (1).to_bytes(8, "little") + b"\7")
    signature = Signature.of([X], TensorSpec("advice", ElementType.BOOL))
    session = connect(f"mlbridge-pipe:{place}").open(PolicyReference("p"), signature, SessionOptions())
    with pytest.raises(InvalidError, match="a bool is the byte 0 or 1, not 7"):
        decide(session)
    os.close(asked)
    os.close(replies)


def answers(task: Task, defaults: Defaults, signature: Signature) -> list[bytes]:
    """Give the replies to two observations of zeros."""
    replies: list[bytes] = []
    responder = Responder(
        task,
        lambda asked, _: Advising(asked, 1),
        defaults,
        CompilationStatistics(),
        patience=Patience(10),
        growth=Growth(1.0),
        go_on=False,
    )
    responder.answer(Header(signature), replies.append)
    for _ in range(2):
        responder.answer(bytes(signature.features.size), replies.append)
    return replies


COST = TensorSpec("cost_estimate", ElementType.INT64)
NODES = TensorSpec("node_count", ElementType.INT64)
DEFAULT = TensorSpec("inlining_default", ElementType.INT64)
ADVICE = TensorSpec("advice", ElementType.INT64)
NARROW = TensorSpec("advice", ElementType.INT32)


@pytest.mark.parametrize(
    ("task", "signature", "error", "reason"),
    [
        (INLINE, Signature.of([TensorSpec("x", ElementType.INT64, (-1,))], ADVICE), InvalidError, "x: LLVM's tensors"),
        (INLINE, Signature.of([TensorSpec("x", ElementType.STRING)], ADVICE), InvalidError, "x: LLVM sends no elem"),
        (INLINE, Signature.of([X], TensorSpec("a", ElementType.BYTES)), InvalidError, "a: LLVM sends no elements"),
        (EVICT, Signature.of([X], ADVICE), PreconditionError, "LLVM sends no feature mask"),
    ],
)
def test_what_llvm_could_not_have_announced_is_refused(
    task: Task, signature: Signature, error: type[PolicyBridgeError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        answers(task, Defaults(), signature)


@pytest.mark.parametrize("features", [[COST, NODES, DEFAULT], [COST, NODES]])
def test_a_default_that_does_not_fit_the_advice_is_no_reply(features: list[TensorSpec]) -> None:
    defaults = SentDefaults() if DEFAULT in features else ComputedDefaults()
    announced = defaults.extended(Signature.of(features, NARROW))
    with pytest.raises(PreconditionError, match="LLVM's own decision is not among"):
        defaults.answer(zeros(announced.features))


def test_a_cost_of_another_width_is_no_cost() -> None:
    narrow = TensorSpec("cost_estimate", ElementType.INT32)
    with pytest.raises(InvalidError, match="LLVM sends no feature cost_estimate"):
        answers(INLINE, ComputedDefaults(), Signature.of([narrow], ADVICE))


def test_features_of_growth_without_elements_or_of_another_type_count_as_their_bytes() -> None:
    empty = TensorSpec("node_count", ElementType.FLOAT, (0,))
    assert len(answers(INLINE, SentDefaults(), Signature.of([COST, empty, DEFAULT], ADVICE))) == 2
