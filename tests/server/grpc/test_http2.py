"""The HTTP/2 under gRPC, against an independent peer: what a client may do to it, and what it costs the others."""

import gzip
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import grpc
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_client.connection import connect
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_serdes.protobuf import signature_to_pb
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

SHAPES = Signature.of([TensorSpec("x", ElementType.INT64, (-1,))], TensorSpec("advice", ElementType.INT64, (-1,)))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
SESSION = "/policybridge.v1.PolicyService/Session"
EVALUATE = "/policybridge.v1.PolicyService/Evaluate"
LIMIT = 4 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering("observation['x']"))
    write_python(
        repository, "waits", "import threading\n\n" + answering("threading.Event().wait(3) or observation['x']")
    )
    with running_server(repository, tmp_path_factory.mktemp("s"), "--max-observation-bytes", LIMIT) as running:
        yield running


_E = TypeVar("_E", bound=h2.events.Event)


class Peer:
    """A client that speaks through the h2 library, frame by frame."""

    def __init__(self, server: RunningServer) -> None:
        host, port = server.grpc.removeprefix("grpc:").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[h2.events.Event] = []

    def start(self, window: int | None = None) -> "Peer":
        """Begin as clients do; with ``window`` bytes for each stream's answers."""
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.flush()
        return self

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def call(self, path: str, *more: tuple[str, str], end: bool = False) -> int:
        """Open a stream."""
        stream = self.h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        self.h2.send_headers(stream, [*headers, ("content-type", "application/grpc"), ("te", "trailers"), *more], end)
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send bytes in as many DATA frames as the server's limits ask for."""
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if not room:
                self.receive()
                continue
            part, data = data[:room], data[room:]
            self.h2.send_data(stream, part, end_stream=end and not data)
            self.flush()

    def receive(self) -> bool:
        """Take what comes next; say whether the connection goes on."""
        data = self.socket.recv(1 << 16)
        self.events += self.h2.receive_data(data) if data else []
        self.flush()
        return bool(data)

    def wait_for(self, kind: type[_E], stream: int = 0) -> _E:
        """Give the next event of a kind, of a stream."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and (not stream or getattr(event, "stream_id", 0) == stream):
                    self.events.remove(event)
                    return event
            assert self.receive(), f"the server closed before any {kind.__name__}"

    def message(self, stream: int) -> bytes:
        """Give the next response message."""
        data = b""
        while len(data) < 5 or len(data) < 5 + int.from_bytes(data[1:5]):
            event = self.wait_for(h2.events.DataReceived, stream)
            data += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
            self.flush()
        return data[5:]

    def status(self, stream: int) -> tuple[int, str]:
        """Give the status and the message that end the call."""
        while True:
            headers = self.trailers(stream)
            if "grpc-status" in headers:
                return int(headers["grpc-status"]), headers.get("grpc-message", "")

    def trailers(self, stream: int) -> dict[str, str]:
        while True:
            for event in self.events:
                kinds = (h2.events.TrailersReceived, h2.events.ResponseReceived)
                if isinstance(event, kinds) and event.stream_id == stream:
                    self.events.remove(event)
                    return {str(name): str(value) for name, value in event.headers}
            assert self.receive(), "the server closed before any headers"

    def open_session(self, policy: str = "echo") -> int:
        """Open a session and read that it is open."""
        stream = self.call(SESSION)
        opened = pb.Open(policy=pb.PolicyReference(name=policy), signature=signature_to_pb(SHAPES))
        self.send(stream, framed(pb.SessionRequest(open=opened)))
        assert pb.SessionResponse.FromString(self.message(stream)).opened.policy.name == policy
        return stream

    def ended(self) -> bool:
        """Whether the server closes the connection."""
        try:
            while self.receive():
                continue
        except (ConnectionResetError, BrokenPipeError):
            pass
        return True


@contextmanager
def peer(server: RunningServer) -> Iterator[Peer]:
    made = Peer(server)
    try:
        yield made
    finally:
        made.socket.close()


def framed(message: pb.SessionRequest | pb.EvaluateRequest, packed: bytes | None = None) -> bytes:
    data = message.SerializeToString() if packed is None else packed
    return bytes([packed is not None]) + len(data).to_bytes(4) + data


def observation(step: int, values: Sequence[int]) -> pb.SessionRequest:
    data = len(values).to_bytes(8, "little") + b"".join(value.to_bytes(8, "little") for value in values)
    return pb.SessionRequest(observation=pb.Observation(step=step, values=data))


def decided(data: bytes) -> int:
    """Give the number of elements in a decision's advice."""
    return len(pb.SessionResponse.FromString(data).decision.advice) // 8 - 1


def still_serves(server: RunningServer) -> None:
    connection = connect(server.grpc, timeout=60)
    session = connection.open(PolicyReference("echo"), SHAPES, SessionOptions())
    assert session.evaluate(pack(SHAPES.features, {"x": [7, 8]}))["advice"][0].tolist() == [7, 8]
    session.close()
    connection.close()


def test_a_session_that_comes_byte_by_byte_is_served(server: RunningServer) -> None:
    with peer(server) as client:
        client.h2.initiate_connection()
        stream = client.h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", SESSION), (":authority", "localhost")]
        client.h2.send_headers(stream, [*headers, ("content-type", "application/grpc")])
        opened = pb.Open(policy=pb.PolicyReference(name="echo"), signature=signature_to_pb(SHAPES))
        client.h2.send_data(stream, framed(pb.SessionRequest(open=opened)) + framed(observation(1, [1, 2, 3])))
        for byte in client.h2.data_to_send():
            client.socket.sendall(bytes([byte]))
        assert pb.SessionResponse.FromString(client.message(stream)).opened.session_id
        assert decided(client.message(stream)) == 3


def test_observations_that_are_sent_ahead_are_answered_in_order(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.open_session()
        client.send(stream, b"".join(framed(observation(step, range(step))) for step in range(1, 40)), end=True)
        assert [decided(client.message(stream)) for _ in range(39)] == list(range(1, 40))
        assert client.status(stream) == (0, "")


@pytest.mark.parametrize("window", [1, 100, 5000])
def test_an_answer_larger_than_the_clients_window_comes_as_the_client_takes_it(
    server: RunningServer, window: int
) -> None:
    with peer(server) as client:
        client.start(window)
        stream = client.open_session()
        client.send(stream, framed(observation(1, range(3000 if window > 1 else 20))), end=True)
        assert decided(client.message(stream)) == (3000 if window > 1 else 20)
        assert client.status(stream) == (0, "")


def test_a_message_of_several_megabytes_comes_through(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.open_session()
        client.send(stream, framed(observation(1, range(400_000))), end=True)
        assert decided(client.message(stream)) == 400_000


def test_many_streams_of_one_connection_are_sessions_of_their_own(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        streams = [client.open_session() for _ in range(40)]
        for index, stream in enumerate(streams):
            client.send(stream, framed(observation(1, range(index))), end=True)
        assert [decided(client.message(stream)) for stream in streams] == list(range(40))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_packed_messages_are_unpacked(server: RunningServer, encoding: str) -> None:
    import zlib  # noqa: PLC0415

    with peer(server) as client:
        client.start()
        stream = client.call(SESSION, ("grpc-encoding", encoding))
        opened = pb.Open(policy=pb.PolicyReference(name="echo"), signature=signature_to_pb(SHAPES))
        data = pb.SessionRequest(open=opened).SerializeToString()
        packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
        client.send(stream, framed(pb.SessionRequest(), packed))
        assert pb.SessionResponse.FromString(client.message(stream)).opened.session_id


@pytest.mark.parametrize(
    ("encoding", "data", "status", "message"),
    [
        ("gzip", b"no gzip", 3, "a message is no gzip"),
        ("gzip", gzip.compress(bytes(64 << 20)), 8, "unpacked"),
        ("br", b"x", 12, "taken are gzip and deflate"),
    ],
    ids=["malformed", "bomb", "unknown"],
)
def test_a_packed_message_that_cannot_be_taken_ends_its_call_alone(
    server: RunningServer, encoding: str, data: bytes, status: int, message: str
) -> None:
    with peer(server) as client:
        client.start()
        other = client.open_session()
        stream = client.call(SESSION, ("grpc-encoding", encoding))
        client.send(stream, framed(pb.SessionRequest(), data))
        code, text = client.status(stream)
        assert code == status
        assert message in text
        client.send(other, framed(observation(1, [1])), end=True)
        assert decided(client.message(other)) == 1


def test_a_message_above_the_limit_is_refused_by_its_length_alone(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.call(EVALUATE)
        client.send(stream, b"\0" + (1 << 31).to_bytes(4))
        code, text = client.status(stream)
        assert code == 8
        assert f"a message of {1 << 31} bytes" in text


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [("/policybridge.v1.PolicyService/Nothing", 12, "no method /policybridge"), ("/", 12, "no method /")],
)
def test_an_unknown_method_is_unimplemented(server: RunningServer, path: str, status: int, message: str) -> None:
    with peer(server) as client:
        client.start()
        code, text = client.status(client.call(path, end=True))
        assert (code, message in text) == (status, True)


def test_a_call_without_a_message_says_so(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        assert client.status(client.call(EVALUATE, end=True)) == (3, "the call ended without a request")
        assert client.status(client.call(SESSION, end=True))[0] == 9


@pytest.mark.parametrize("path", [SESSION, EVALUATE])
def test_a_call_that_ends_in_the_midst_of_a_message_says_so(server: RunningServer, path: str) -> None:
    with peer(server) as client:
        client.start()
        stream = client.call(path)
        client.send(stream, b"\0\0\0\0\x09 short", end=True)
        assert client.status(stream) == (3, "the requests end in the midst of a message")


def test_a_request_that_is_no_grpc_is_told_its_media_type_is_wrong(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.h2.get_next_available_stream_id()
        headers = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "localhost")]
        client.h2.send_headers(stream, headers, end_stream=True)
        client.flush()
        assert client.trailers(stream)[":status"] == "415"


def test_who_speaks_http_1_is_told_what_the_port_speaks(server: RunningServer) -> None:
    with peer(server) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"This port speaks gRPC." in client.socket.recv(4096)
        assert client.ended()


def test_the_clients_deadline_ends_a_call_that_waits_for_the_policy(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.call(SESSION, ("grpc-timeout", "200m"))
        opened = pb.Open(policy=pb.PolicyReference(name="waits"), signature=signature_to_pb(SHAPES))
        client.send(stream, framed(pb.SessionRequest(open=opened)) + framed(observation(1, [1])))
        assert client.status(stream)[0] == 4


def test_a_call_that_is_reset_in_the_midst_costs_nobody_else_anything(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        other, stream = client.open_session(), client.open_session()
        client.send(stream, framed(observation(1, range(1000))))
        client.h2.reset_stream(stream)
        client.flush()
        client.send(other, framed(observation(1, [1, 2])), end=True)
        assert decided(client.message(other)) == 2
        assert client.status(other) == (0, "")


def test_pings_are_answered(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        client.h2.ping(b"12345678")
        client.flush()
        assert client.wait_for(h2.events.PingAckReceived).ping_data == b"12345678"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"", size: int | None = None) -> bytes:
    return (len(payload) if size is None else size).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 64,
        b"\x16\x03\x01 a TLS hello",
        PREFACE + EMPTY_SETTINGS + _frame(0, 0, 1, b"data on a stream that nobody opened"),
        PREFACE + EMPTY_SETTINGS + _frame(0, 0, 0, b"data on no stream"),
        PREFACE + EMPTY_SETTINGS + _frame(1, 4, 2, b"\x82"),
        PREFACE + EMPTY_SETTINGS + _frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        PREFACE + EMPTY_SETTINGS + _frame(1, 12, 1, b"\xff\x82"),
        PREFACE + EMPTY_SETTINGS + _frame(1, 0, 1, b"\x82") + _frame(6, 0, 0, bytes(8)),
        PREFACE + EMPTY_SETTINGS + _frame(9, 4, 1, b"\x82"),
        PREFACE + EMPTY_SETTINGS + _frame(1, 0, 1) + _frame(9, 0, 1, bytes(16_000)) * 5,
        PREFACE + EMPTY_SETTINGS + _frame(0, 0, 1, b"", size=0xFFFFFF),
        PREFACE + EMPTY_SETTINGS + _frame(4, 0, 0, b"\0\1\0"),
        PREFACE + EMPTY_SETTINGS + _frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"),
        PREFACE + EMPTY_SETTINGS + _frame(4, 0, 0, b"\0\5\0\0\0\0"),
        PREFACE + EMPTY_SETTINGS + _frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
        PREFACE + EMPTY_SETTINGS + _frame(8, 0, 0, b"\1"),
        PREFACE + EMPTY_SETTINGS + _frame(6, 0, 0, b"short"),
        PREFACE + EMPTY_SETTINGS + _frame(5, 4, 1, bytes(8)),
    ],
    ids=[
        "zeros",
        "tls",
        "data-unopened",
        "data-no-stream",
        "even-stream",
        "hpack",
        "padding",
        "interrupted-headers",
        "continuation-of-nothing",
        "endless-headers",
        "huge-frame",
        "settings-cut",
        "window-too-large",
        "frames-of-nothing",
        "window-overflow",
        "window-cut",
        "ping-cut",
        "push",
    ],
)
def test_a_peer_that_breaks_the_protocol_is_disconnected_and_others_are_not(server: RunningServer, data: bytes) -> None:
    with peer(server) as client:
        client.socket.sendall(data)
        client.socket.settimeout(10)
        try:
            while client.socket.recv(4096):
                continue
        except ConnectionResetError:
            pass
    still_serves(server)


def test_frames_of_kinds_that_nobody_knows_are_ignored(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        client.socket.sendall(_frame(0xBE, 0xFF, 7, b"an extension"))
        stream = client.open_session()
        client.send(stream, framed(observation(1, [1])), end=True)
        assert decided(client.message(stream)) == 1


def test_a_client_that_never_reads_its_answers_costs_nobody_else_anything(server: RunningServer) -> None:
    with peer(server) as client:
        client.start()
        stream = client.open_session()
        client.send(stream, b"".join(framed(observation(step, range(2000))) for step in range(1, 30)))
        still_serves(server)


def test_when_the_server_ends_its_clients_are_told_to_go_elsewhere(tmp_path: Path) -> None:
    repository = tmp_path / "policies"
    write_python(repository, "echo", answering("observation['x']"))
    with running_server(repository, tmp_path, "--grace", "0.2") as server, peer(server) as client:
        client.start()
        stream = client.open_session()
        server.process.terminate()
        assert client.status(stream) == (14, "the server shut down before the session ended")
        client.wait_for(h2.events.ConnectionTerminated)
        assert client.ended()


def test_the_path_of_a_socket_goes_with_its_server_and_a_dead_servers_is_taken_over(tmp_path: Path) -> None:
    repository = tmp_path / "policies"
    write_python(repository, "echo", answering("observation['x']"))
    path = tmp_path / "grpc.sock"
    with running_server(repository, tmp_path, "--grpc", f"unix:{path}") as first:
        first.kill()
    assert path.exists()
    with running_server(repository, tmp_path, "--grpc", f"unix:{path}") as second:
        assert second.others[0] == f"grpc:unix:{path}"
    assert not path.exists()


def test_an_address_that_somebody_else_has_is_refused(server: RunningServer, tmp_path: Path) -> None:
    from tests.server.test_serve import refusal  # noqa: PLC0415

    repository = tmp_path / "policies"
    write_python(repository, "echo", answering("observation['x']"))
    address = server.grpc.removeprefix("grpc:")
    assert f"cannot listen on {address}" in refusal("--repository", repository, "--grpc", address)


def test_a_channel_of_grpcs_own_library_gets_details_of_errors(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        call = channel.unary_unary(EVALUATE, pb.EvaluateRequest.SerializeToString, pb.EvaluateResponse.FromString)
        with pytest.raises(grpc.RpcError) as failure:
            call(pb.EvaluateRequest(policy=pb.PolicyReference(name="echo")), timeout=60)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "grpc-status-details-bin" in str(failure.value.trailing_metadata())
