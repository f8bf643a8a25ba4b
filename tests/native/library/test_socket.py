"""The C++ library and the C ABI on the Unix socket, against a server that is slow, dies or sends malformed answers."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pytest

from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    NotFoundError,
    PolicyBridgeError,
    PolicyFailedError,
    PreconditionError,
    TooLargeError,
    UnavailableError,
    UnknownError,
)
from policybridge_serdes import ElementType, Outcome, PolicyReference, SessionOptions, Signature, TensorSpec
from policybridge_serdes.interactive import context_line, header_line
from tests.client.peers import OPENED, PAUSE, Peer, Sent
from tests.native.clients import Connect, NativeSession, programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS, Kind


@pytest.fixture(params=["cpp-socket-sanitized", "c-socket-sanitized"], scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def connect(kind: Kind, native: Target) -> Iterator[Connect]:
    with programs(kind.program(native)) as connect:
        yield connect


OpenAt = Callable[..., NativeSession]


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Collect the peers of the test's sessions."""
    peers: list[Peer] = []
    yield peers
    for peer in peers:
        peer.close()


@pytest.fixture
def open_at(connect: Connect, peers: list[Peer]) -> Iterator[OpenAt]:
    """Open a session at a peer: ``open_at(advice, sent…, opened=…)``."""
    with TemporaryDirectory(prefix="pb-") as folder:

        def open_(
            advice: TensorSpec,
            *reply: Sent,
            opened: tuple[Sent, ...] = (OPENED,),
            answers: int = 1,
            timeout: float = 10.0,
        ) -> NativeSession:
            path = Path(folder) / f"{len(peers)}.sock"
            peers.append(Peer(path, opened, reply, answers))
            signature = Signature.of([TensorSpec("x", ElementType.INT64)], advice)
            connection = connect(f"socket:{path}", timeout=timeout)
            return connection.open(PolicyReference("p"), signature, SessionOptions())

        yield open_


NUMBER = TensorSpec("advice", ElementType.INT64)
MANY = TensorSpec("advice", ElementType.INT64, (-1,))
TEXT = TensorSpec("advice", ElementType.STRING, (-1,))
FLAG = TensorSpec("advice", ElementType.BOOL)


def size(count: int) -> bytes:
    return struct.pack("<Q", count)


def test_answers_that_arrive_byte_by_byte_are_read_as_a_whole(open_at: OpenAt) -> None:
    reply = b"\0" + struct.pack("<q", -5)
    session = open_at(NUMBER, *(bytes([byte]) for byte in reply), opened=tuple(bytes([byte]) for byte in OPENED))
    assert session.policy.version == 3
    assert session.decide() == -5


def test_a_header_is_sent_once_and_a_context_with_the_observation_that_follows(
    open_at: OpenAt, peers: list[Peer]
) -> None:
    session = open_at(NUMBER, b"\0" + bytes(8), answers=3)
    session.context("never")
    session.context("f")
    session.decide()
    session.decide()
    session.context("größer")
    session.decide()
    line = b'{"observation":%d}\n' + bytes(8) + b"\n"
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], NUMBER)
    assert peers[0].observed == [
        header_line(signature) + context_line("f") + line % 0,
        line % 1,
        context_line("größer") + line % 2,
    ]


@pytest.mark.parametrize(
    ("opened", "error", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", InvalidError, "does not follow the protocol: 'HTTP"),
        (b"[" * 5000 + b"\n", InvalidError, "does not follow the protocol"),
        (b'{"session":"s","policy":"p","version":-1}\n', InvalidError, "does not follow the protocol"),
        (b'{"session":"s","policy":"p","version":1e400}\n', InvalidError, "does not follow the protocol"),
        *[
            (
                b'{"session":"s","policy":"p","version":1,"more":%b}\n' % number,
                InvalidError,
                "does not follow the protocol",
            )
            for number in (b"-inf", b"inf", b"nan", b"01", b"1.", b".5", b"+1", b"0x1", b"1e")
        ],
        (b'{"session":"s","policy":"\xff","version":1}\n', InvalidError, "does not follow the protocol"),
        (b'{"session":"s","policy":"p","version":1}}\n', InvalidError, "does not follow the protocol"),
        (b'{"session":"s","policy":"p","version":1,}\n', InvalidError, "does not follow the protocol"),
        (b'{"error":{"status":0,"message":"fine"}}\n', InvalidError, "does not follow the protocol"),
        (b'{"error":{"status":99,"message":"odd"}}\n', UnknownError, "odd"),
        (b'{"error":{"status":5,"message":"\\u0067r\\u00f6\\ud83d\\ude00"}}\n', NotFoundError, "grö😀"),
        (b"x" * (2 << 20), TooLargeError, "a line of more than 1048576 bytes"),
        (b'{"session":', UnavailableError, "went away without an answer"),
        (b"", UnavailableError, "went away without an answer"),
    ],
)
def test_a_malformed_answer_to_the_hello_is_an_error(
    open_at: OpenAt, opened: bytes, error: type[PolicyBridgeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_at(NUMBER, opened=(opened,) if opened else ())


@pytest.mark.parametrize(
    ("advice", "reply", "error", "message"),
    [
        (NUMBER, b"\2" + bytes(8), InvalidError, "begins with the byte 2"),
        (NUMBER, b"\0" + bytes(7), UnavailableError, "went away"),
        (NUMBER, b"", UnavailableError, "went away"),
        (NUMBER, b"\1boom\n", InvalidError, "does not follow the protocol: 'boom"),
        (NUMBER, b"\1{}\n", InvalidError, "does not follow the protocol"),
        (NUMBER, b'\1{"error":{"status":14,"message":"draining"}}\n', UnavailableError, "draining"),
        (MANY, b"\0" + size(2**63), TooLargeError, "an advice of 9223372036854775808 bytes"),
        (MANY, b"\0" + size((64 << 20) + 1), TooLargeError, "at most 67108864 are taken"),
        (MANY, b"\0" + size(8) + size(1), InvalidError, "8 bytes announced, 0 are left"),
        (MANY, b"\0" + size(8) + size(2**61), InvalidError, "a size of 2305843009213693952"),
        (MANY, b"\0" + size(12) + size(1) + bytes(4), InvalidError, "8 bytes announced, 4 are left"),
        (MANY, b"\0" + size(9) + size(0) + bytes(1), InvalidError, "1 bytes follow the advice"),
        (MANY, b"\0" + size(4) + bytes(4), InvalidError, "8 bytes announced, 4 are left"),
        (TEXT, b"\0" + size(12) + size(1) + b"\xff" * 4, InvalidError, "4294967295 bytes announced"),
        (TEXT, b"\0" + size(13) + size(1) + b"\1\0\0\0\xff", InvalidError, "not UTF-8"),
        (FLAG, b"\0\2", InvalidError, "a bool is 0 or 1, not 2"),
    ],
)
def test_a_malformed_reply_is_an_error_that_ends_the_session(
    open_at: OpenAt, advice: TensorSpec, reply: bytes, error: type[PolicyBridgeError], message: str
) -> None:
    session = open_at(advice, reply)
    with pytest.raises(error, match=message):
        session.decide()
    with pytest.raises(PreconditionError, match="the session is over"):
        session.decide()


def test_an_advice_without_elements_is_an_advice(open_at: OpenAt) -> None:
    assert open_at(MANY, b"\0" + size(8) + size(0)).decide().tolist() == []


def test_a_malformed_answer_to_an_outcome_is_an_error(open_at: OpenAt) -> None:
    with pytest.raises(InvalidError, match="does not follow the protocol"):
        open_at(NUMBER, b'\0{"recorded":false}\n').report(Outcome({}, "ok"))


def test_silence_at_the_hello_meets_the_deadline(open_at: OpenAt) -> None:
    with pytest.raises(DeadlineError, match=r"within 0\.1 s"):
        open_at(NUMBER, opened=(PAUSE, PAUSE), timeout=0.1)


def test_a_reply_that_trickles_meets_the_deadline_as_a_whole(open_at: OpenAt) -> None:
    session = open_at(NUMBER, *[b"\0", PAUSE] * 9, timeout=0.5)
    begun = monotonic()
    with pytest.raises(DeadlineError, match=r"within 0\.5 s"):
        session.decide()
    assert monotonic() - begun < 1.5


def test_a_hello_that_trickles_meets_the_deadline_as_a_whole(open_at: OpenAt) -> None:
    with pytest.raises(DeadlineError, match=r"within 0\.5 s"):
        open_at(NUMBER, opened=tuple([b"{", PAUSE] * 20), timeout=0.5)


def test_a_request_and_all_parts_of_its_reply_have_one_deadline(open_at: OpenAt) -> None:
    session = open_at(MANY, PAUSE, PAUSE, b"\0", PAUSE, PAUSE, size(16) + size(1), PAUSE, PAUSE, bytes(8), timeout=1)
    with pytest.raises(DeadlineError, match="within 1 s"):
        session.decide()


def test_an_error_is_read_from_a_server_that_does_not_close(open_at: OpenAt) -> None:
    line = b'\1{"error":{"status":13,"message":"boom"}}\n'
    session = open_at(TensorSpec("advice", ElementType.INT64, (100,)), line, *[PAUSE] * 1000, timeout=100)
    with pytest.raises(PolicyFailedError, match="boom"):
        session.decide()


def test_a_path_that_is_too_long_for_a_socket_is_refused(connect: Connect) -> None:
    connection = connect("socket:/" + "x" * 200)
    with pytest.raises(UnavailableError, match="AF_UNIX path too long"):
        connection.check()
