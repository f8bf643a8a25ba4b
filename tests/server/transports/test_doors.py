"""Clients that say nothing, or too little: each wait has an end, and descriptors are kept back."""

import asyncio
import contextlib
import http.client
import json
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_server.config import ServerConfig
from policybridge_server.loop import Loop
from policybridge_server.transports.doors import Doors, Wait
from tests.conftest import command
from tests.repositories import answering, write_python

ECHO = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))
HELLO = b'{"policybridge":1,"policy":"echo"}\n'
HEADER = (
    b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1]}],'
    b'"advice":{"name":"advice","type":"int64_t","port":0,"shape":[1]}}\n'
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"

Start = Callable[..., dict[str, str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Serve an echo on all three ports with the given options; give the addresses by their kind."""
    write_python(tmp_path, "echo", answering("observation['x']"))
    with ExitStack() as stack:

        def server(*arguments: object, descriptors: int | None = None) -> dict[str, str]:
            folder = stack.enter_context(TemporaryDirectory(prefix="pb-"))
            listen = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--socket", f"{folder}/s"]
            limited = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
            serve = command("serve", "--repository", tmp_path, "--allow-python", *listen, *arguments)
            process = subprocess.Popen([*limited, *serve], stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait, 20)
            stack.callback(process.kill)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            ready, *addresses = process.stdout.readline().split()
            assert ready == "ready"
            return dict(address.split(":", 1) for address in addresses)

        yield server


def reach(addresses: dict[str, str], kind: str) -> socket.socket:
    if kind == "socket":
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(30)
        peer.connect(addresses[kind])
        return peer
    host, port = addresses[kind].split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_to_the_end(peer: socket.socket) -> bytes:
    data = b""
    with peer, contextlib.suppress(ConnectionResetError):
        while piece := peer.recv(1 << 16):
            data += piece
    return data


def ask(addresses: dict[str, str], kind: str) -> int:
    connection = connect(f"{kind}:{addresses[kind]}", timeout=60)
    try:
        session = connection.open(PolicyReference("echo"), ECHO, SessionOptions())
        return int(session.evaluate(pack(ECHO.features, {"x": 7}))["advice"].item())
    finally:
        connection.close()


def is_ready(addresses: dict[str, str]) -> bool:
    connection = http.client.HTTPConnection(addresses["http"], timeout=60)
    try:
        connection.request("GET", "/v2/health/ready")
        return bool(json.loads(connection.getresponse().read())["ready"])
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["socket", "grpc", "http"])
def test_silent_connections_give_their_places_to_clients_that_speak(start: Start, kind: str) -> None:
    addresses = start(descriptors=128)
    with contextlib.ExitStack() as silent:
        for _ in range(160):
            silent.enter_context(reach(addresses, kind))
        assert (ask(addresses, "socket"), ask(addresses, "grpc"), is_ready(addresses)) == (7, 7, True)


def opened(addresses: dict[str, str]) -> tuple[socket.socket, bytes]:
    peer = reach(addresses, "socket")
    # One that is refused at once can no longer send, and reads why.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        peer.sendall(HELLO)
    return peer, peer.recv(1 << 12)


def test_where_all_connections_have_sessions_a_newcomer_is_refused_in_words_and_descriptors_are_left(
    start: Start, tmp_path: Path
) -> None:
    addresses = start("--ledger", tmp_path / "runs.db", descriptors=128)
    with ExitStack() as stack:
        answer, peers = b'{"session"', []
        while answer.startswith(b'{"session"'):
            peer, answer = opened(addresses)
            peers.append(stack.enter_context(peer))
            assert len(peers) < 100
        assert answer.startswith(b'{"error":{"status":14,"message":"the server is full')
        peers.pop().close()
        assert b"the server is full" in read_to_the_end(reach(addresses, "grpc"))
        assert read_to_the_end(reach(addresses, "http")).startswith(b"HTTP/1.1 503 ")
        # The sessions that are open go on, and the ledger still has its files.
        peers[0].sendall(HEADER + b'{"observation":0}\n' + struct.pack("<q", 5) + b"\n")
        assert peers[0].recv(9) == b"\0" + struct.pack("<q", 5)
        peers[0].sendall(b'{"outcome":{"values":{"text":1}}}\n')
        assert peers[0].recv(100) == b'\0{"recorded":true}\n'
    assert (ask(addresses, "grpc"), is_ready(addresses)) == (7, True)


NO_HELLO = b"did not come within 2 seconds (--hello-timeout)"
HALF = b"not whole after 2 seconds (--message-timeout)"
INFER = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-"

HalfWay = tuple[str, bytes, bytes]

HALF_WAY: list[HalfWay] = [
    ("socket", b"", NO_HELLO),
    ("socket", HELLO[:12], NO_HELLO),
    ("grpc", b"", NO_HELLO),
    ("grpc", PREFACE[:9], NO_HELLO),
    ("grpc", PREFACE, NO_HELLO),
    ("http", b"", NO_HELLO),
    ("http", INFER, NO_HELLO),
    ("grpc", PREFACE + SETTINGS, b"carried nothing for 2 seconds (--idle-timeout)"),
    ("socket", HELLO + HEADER[:30], HALF),
    ("socket", HELLO + HEADER + b'{"observation":0}\n1234', HALF),
    ("http", INFER + b"Type: application/json\r\nContent-Length: 99\r\n\r\n{", HALF),
]
"""The port, what the client sends before it falls silent, and what it is told."""


def test_a_client_that_stops_half_way_is_told_so_and_closed(start: Start) -> None:
    addresses = start("--hello-timeout", 2, "--idle-timeout", 2, "--message-timeout", 2)

    def stopped(kind: str, words: bytes) -> socket.socket:
        peer = reach(addresses, kind)
        peer.sendall(words)
        return peer

    def not_told(cases: list[HalfWay]) -> list[HalfWay]:
        peers = [stopped(kind, words) for kind, words, _ in cases]
        return [case for case, peer in zip(cases, peers, strict=True) if case[2] not in read_to_the_end(peer)]

    # A busy machine may not let this test speak within two seconds; then the server says that nothing came.
    left = HALF_WAY
    for _ in range(5):
        left = not_told(left)
    assert left == []


def _none_until_told(told: socket.socket) -> Iterator[Any]:
    told.recv(1)
    yield from ()


def test_a_call_without_its_first_message_ends_with_its_deadline(start: Start) -> None:
    import grpc  # noqa: PLC0415

    from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub  # noqa: PLC0415

    addresses = start("--hello-timeout", 0.2)
    with grpc.insecure_channel(addresses["grpc"]) as channel:
        silence = socket.socketpair()
        replies = PolicyServiceStub(channel).Session(_none_until_told(silence[0]))
        with pytest.raises(grpc.RpcError) as raised:
            list(replies)
        silence[1].close()
        silence[0].close()
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_session_whose_compiler_thinks_is_never_closed(start: Start) -> None:
    addresses = start("--idle-timeout", 0.5, "--message-timeout", 0.5)
    thinking = {kind: connect(f"{kind}:{addresses[kind]}", timeout=60) for kind in ("socket", "grpc")}
    sessions = {kind: each.open(PolicyReference("echo"), ECHO, SessionOptions()) for kind, each in thinking.items()}
    # Connections that say nothing are closed meanwhile, one after another.
    for _ in range(3):
        peer = reach(addresses, "grpc")
        peer.sendall(PREFACE + SETTINGS)
        assert b"--idle-timeout" in read_to_the_end(peer)
    for kind, session in sessions.items():
        assert session.evaluate(pack(ECHO.features, {"x": 3}))["advice"].item() == 3, kind
    for each in thinking.values():
        each.close()


@pytest.mark.parametrize(("descriptors", "boundary"), [(128, 96), (1024, 960)])
def test_descriptors_are_reserved_up_to_a_quarter_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: Loop, descriptors: int, boundary: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (descriptors, descriptors))
    config = ServerConfig(repository=[str(tmp_path)], socket=["s"], reserve_descriptors=64)
    assert Doors(loop, config).boundary == boundary


class Late:
    def __init__(self, dismissed: list[PolicyBridgeError]) -> None:
        self._dismissed = dismissed

    def dismiss(self, error: PolicyBridgeError) -> None:
        self._dismissed.append(error)


def test_thousands_of_clients_whose_time_is_over_together_are_dismissed_in_many_turns(tmp_path: Path) -> None:
    async def most_in_a_turn() -> int:
        doors = Doors(loop, ServerConfig(repository=[str(tmp_path)], socket=["s"], hello_timeout=0.05))
        dismissed: list[PolicyBridgeError] = []
        for _ in range(1000):
            doors.expect(Late(dismissed), Wait.HELLO)
        most = before = 0
        while len(dismissed) < 1000:
            await asyncio.sleep(0)
            most, before = max(most, len(dismissed) - before), len(dismissed)
        return most

    loop = Loop(lambda: 0)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(asyncio.wait_for(most_in_a_turn(), 60)) < 100
