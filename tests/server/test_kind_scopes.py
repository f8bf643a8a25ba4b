"""The scope of one kind of decisions: outside of it the kind is refused, and the other kinds of the session go on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.connection import connect
from policybridge_client.local import decide_here
from policybridge_core.errors import OutOfScopeError, PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions, Signature, pack
from policybridge_serdes.interactive import header_line, observation_lines
from policybridge_serdes.protobuf import signature_to_pb
from policybridge_server.repository import Repository
from tests.conftest import RunningServer, running_server
from tests.server.engine.test_kinds import ADDS, CHOOSES, TOML, write_version
from tests.server.grpc.test_grpc_protocol import Stream
from tests.server.publishing.policies import client, wait_for
from tests.server.transports.test_socket_protocol import Peer

SCOPES = """
[kinds.chooses.scope]
level = ["Oz"]
language = ["c", "c++"]

[kinds.adds.scope]
language = ["c", "rust"]

[scope]
level = ["Oz", "Os"]
"""
BOTH = PolicyReference("both")
WHY = "both@1 decides chooses for level Oz, and the compilation has 'Os' ([kinds.chooses.scope] in policy.toml)"

Opening = Callable[[Signature, dict[str, str]], int]


def write(repository: Path, toml: str = TOML + SCOPES) -> Path:
    write_version(repository / "both" / "1", 100)
    (repository / "both" / "policy.toml").write_text(toml)
    return repository


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(repository, tmp_path_factory.mktemp("s"), "--allow-publish") as running:
        yield running


@pytest.fixture(params=["inprocess", "socket", "grpc"])
def advice(request: pytest.FixtureRequest, repository: Path, server: RunningServer) -> Opening:
    """Open a session for one kind with these labels, and give its advice: 1 + 100, or the choice of a size of 11."""
    address = f"inprocess:{repository}" if request.param == "inprocess" else str(getattr(server, request.param))

    def ask(signature: Signature, labels: dict[str, str]) -> int:
        value = {"x": 1} if signature == ADDS else {"size": 11}
        options = SessionOptions(labels=labels)
        with connect(address, timeout=60) as connection, connection.open(BOTH, signature, options) as session:
            return int(session.evaluate(pack(signature.features, value))[signature.advice.name].item())

    return ask


@pytest.mark.parametrize("labels", [{}, {"level": "Oz", "language": "c"}, {"language": "c"}])
def test_within_the_scopes_and_without_the_labels_both_kinds_are_decided(
    advice: Opening, labels: dict[str, str]
) -> None:
    assert (advice(ADDS, labels), advice(CHOOSES, labels)) == (101, 1)


@pytest.mark.parametrize(
    ("labels", "outside", "inside", "why"),
    [
        (
            {"level": "Os"},
            CHOOSES,
            ADDS,
            r"both@1 decides chooses for level Oz, and the compilation has 'Os' \(\[kinds",
        ),
        ({"language": "rust"}, CHOOSES, ADDS, "for language c or c\\+\\+, and the compilation has 'rust'"),
        ({"language": "c++"}, ADDS, CHOOSES, r"both@1 decides adds for language c or rust.*\[kinds.adds.scope\]"),
    ],
)
def test_outside_of_its_scope_a_kind_is_refused_and_the_other_one_is_decided(
    advice: Opening, labels: dict[str, str], outside: Signature, inside: Signature, why: str
) -> None:
    with pytest.raises(OutOfScopeError, match=why):
        advice(outside, labels)
    assert advice(inside, labels) in (1, 101)


@pytest.mark.parametrize("signature", [ADDS, CHOOSES])
@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (
            {"language": "c++", "level": "Os"},
            "both@1 decides adds for language c or rust.*; both@1 decides chooses for level Oz",
        ),
        ({"level": "O2"}, r"both@1 is for level Oz or Os, and the compilation has 'O2' \(\[scope\]"),
    ],
)
def test_a_session_for_which_no_kind_is_left_is_refused(
    advice: Opening, signature: Signature, labels: dict[str, str], why: str
) -> None:
    with pytest.raises(OutOfScopeError, match=why):
        advice(signature, labels)


@pytest.fixture
def hello(server: RunningServer) -> Iterator[Callable[[str], Peer]]:
    """Open a session over the socket at this level; its answer is still to be read."""
    peers: list[Peer] = []

    def open_session(level: str) -> Peer:
        peers.append(Peer(server))
        peers[-1].send(b'{"policybridge":1,"policy":"both","labels":{"level":"%s"}}\n' % level.encode())
        return peers[-1]

    yield open_session
    for peer in peers:
        peer.file.close()
        peer.socket.close()


def test_one_session_over_grpc_is_told_the_kind_and_why_and_goes_on_with_the_other(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc[5:]) as channel:
        stream = Stream(PolicyServiceStub(channel))
        opened = stream.open("both", signature=None, labels={"level": "Os"})
        assert (list(opened.decides), dict(opened.outside)) == (["adds"], {"chooses": WHY})
        asked = pb.Observation(step=1, values=pack(ADDS.features, {"x": 1}).tobytes())
        stream.send(signature=signature_to_pb(ADDS))
        stream.send(observation=asked)
        assert stream.decision().advice == (101).to_bytes(8, "little")
        stream.send(signature=signature_to_pb(CHOOSES))
        with pytest.raises(grpc.RpcError, match="both@1 decides chooses for level Oz") as failure:
            stream.decision()
        assert failure.value.code() is grpc.StatusCode.OUT_OF_RANGE


def test_one_session_over_the_socket_is_told_the_kind_and_why_and_goes_on_with_the_other(
    hello: Callable[[str], Peer],
) -> None:
    peer = hello("Os")
    opened = peer.line()
    assert (opened["decides"], opened["outside"]) == (["adds"], {"chooses": WHY})
    values = pack(ADDS.features, {"x": 1}).tobytes()
    peer.send(header_line(ADDS), observation_lines(0, values, fixed=True))
    assert peer.read(9) == b"\0" + (101).to_bytes(8, "little")
    peer.send(header_line(CHOOSES), observation_lines(1, values, fixed=True))
    assert peer.error() == f"11 {WHY}"


def test_sessions_side_by_side_have_each_the_kinds_of_its_own_labels(hello: Callable[[str], Peer]) -> None:
    peers = {level: hello(level) for level in ("Oz", "Os", "Oz\\u0000", "O2")}
    told = {level: peer.line().get("decides") for level, peer in peers.items()}
    assert told == {"Oz": ["adds", "chooses"], "Os": ["adds"], "Oz\\u0000": None, "O2": None}


def test_the_form_of_a_kind_is_offered_to_sessions_within_its_scope_alone(server: RunningServer) -> None:
    with connect(server.grpc, timeout=60) as connection:

        def opened(level: str) -> set[str]:
            options = SessionOptions(labels={"level": level}, evaluates=True)
            with connection.open(BOTH, ADDS, options) as session:
                return {*session.forms}  # type: ignore[attr-defined]

        wait_for(lambda: opened("Oz") == {"adds", "chooses"})
        assert opened("Os") == {"adds"}
        options = SessionOptions(labels={"level": "Os"}, evaluates=True)
        with decide_here(connection.open(BOTH, ADDS, options), ADDS, asks=False) as session:
            assert session.evaluate(pack(ADDS.features, {"x": 1}))["adds"].item() == 101
        with pytest.raises(OutOfScopeError):
            connection.open(BOTH, CHOOSES, options)


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        (
            'chooses.scope]\nlevel = ["Oz", "O3"]',
            r"\[kinds.chooses.scope\] has level 'O3', for which \[scope\] refuses",
        ),
        ("chooses.scope]\nlevel = []", r"\[kinds.chooses.scope\] has level = \[\]; the values of a label are an array"),
        ("chooses.scope]\nllvm = [22]", r"\[kinds.chooses.scope\] has llvm = \[22\]; .* such as llvm = \['22'\]"),
        ('chooses.scope]\n"" = ["Oz"]', r"`key` in `\$\.kinds\[...\]\.scope`"),
        (f"chooses.scope]\nlevel = {['Oz'] * 33}", "1 to 32 texts"),
        ('tiles.scope]\nlevel = ["Oz"]', r"decides names the kinds of decisions, and \[kinds.KIND\]"),
    ],
)
def test_a_scope_of_a_kind_that_is_malformed_or_wider_than_that_of_all_is_refused(
    server: RunningServer, tmp_path: Path, scope: str, why: str
) -> None:
    toml = f'{TOML}[scope]\nlevel = ["Oz", "Os"]\n[kinds.{scope}\n'
    with pytest.raises(PreconditionError, match=why):
        Repository([write(tmp_path / "policies", toml)]).resolve(BOTH)
    with client(server) as publishing, pytest.raises(PreconditionError, match=why):
        publishing.repository.publish("other", write_version(tmp_path / "new", 200), config=toml)


def test_the_scope_of_a_kind_is_part_of_the_digest(tmp_path: Path) -> None:
    plain, scoped = (
        Repository([write(tmp_path / name, toml)]).resolve(BOTH).policy.digest
        for name, toml in (("plain", TOML), ("scoped", TOML + '[kinds.chooses.scope]\nlevel = ["Oz"]\n'))
    )
    assert plain != scoped
