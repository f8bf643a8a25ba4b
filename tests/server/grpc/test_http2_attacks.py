"""What one gRPC connection can do to the server and to its other clients: a bounded amount."""

import gzip
import itertools
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import psutil
import pytest

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge_client.connection import connect
from policybridge_serdes import PolicyReference, SessionOptions, pack
from policybridge_serdes.protobuf import signature_to_pb
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.grpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    EVALUATE,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SESSION,
    SETTINGS,
    WINDOW_UPDATE,
    RawPeer,
    frame,
    headers,
    literal,
    message,
    raw_peer,
    request,
    word,
)
from tests.server.grpc.test_http2 import SHAPES, observation

MIB = 1 << 20
NARROW = struct.pack(">HL", 4, 0)
"""A setting: answers may have no byte."""

WIDE = struct.pack(">HL", 4, 2**31 - 1)
WIDER = frame(WINDOW_UPDATE, 0, 0, word(2**31 - 1 - 65_535))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering("observation['x']"))
    options = ("--max-observation-bytes", 8 * MIB, "--max-buffered-bytes", 64 * MIB)
    with running_server(repository, tmp_path_factory.mktemp("s"), *options) as running:
        still_serves(running)
        yield running


def still_serves(server: RunningServer) -> None:
    connection = connect(server.grpc, timeout=60)
    session = connection.open(PolicyReference("echo"), SHAPES, SessionOptions())
    assert session.evaluate(pack(SHAPES.features, {"x": [7, 8]}))["advice"][0].tolist() == [7, 8]
    session.close()
    connection.close()


def opening() -> bytes:
    opened = pb.Open(policy=pb.PolicyReference(name="echo"), signature=signature_to_pb(SHAPES))
    return message(pb.SessionRequest(open=opened).SerializeToString())


def asking(values: int) -> bytes:
    return message(observation(1, range(values)).SerializeToString())


def _reset(stream: int) -> bytes:
    return headers(stream) + frame(RST_STREAM, 0, stream, word(8))


FLOODS = {
    "settings": lambda _: frame(SETTINGS, 0, 0),
    "acknowledged settings": lambda _: frame(SETTINGS, 1, 0),
    "pings": lambda _: frame(PING, 0, 0, bytes(8)),
    "priorities": lambda _: frame(PRIORITY, 0, 7, bytes(5)),
    "windows": lambda _: frame(WINDOW_UPDATE, 0, 0, word(1)),
    "unknown frames": lambda _: frame(0xBE, 0, 0),
    "resets": _reset,
    "refused streams": lambda stream: frame(HEADERS, END_HEADERS, stream, literal("X", "malformed")),
    "empty data": lambda stream: frame(DATA, 0, 1) if stream > 1 else headers(1),
    "padding": lambda stream: frame(DATA, 8, 1, b"\3" + bytes(3)) if stream > 1 else headers(1),
    "single bytes": lambda stream: frame(DATA, 0, 1, b"\0" if stream < 6 else b"\1") if stream > 1 else headers(1),
    "empty continuations": lambda stream: (
        frame(CONTINUATION, 0, 1) if stream > 1 else frame(HEADERS, 0, 1, request(SESSION))
    ),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_frames_that_bring_no_call_further_are_answered_by_enhance_your_calm(
    server: RunningServer, flood: "object"
) -> None:
    with raw_peer(server.grpc) as peer:
        sender = threading.Thread(target=_send_many, args=(peer, flood))
        sender.start()
        ends = [found for found in peer.frames() if found.kind == GOAWAY]
        sender.join()
    assert [found.code for found in ends] == [ENHANCE_YOUR_CALM]
    still_serves(server)


def _send_many(peer: RawPeer, flood: "object") -> None:
    for start in range(1, 20_001, 400):
        if not peer.send(b"".join(flood(stream) for stream in range(start, start + 400, 2))):  # type: ignore[operator]
            return


def test_frames_of_thousands_of_settings_are_borne_like_as_many_frames(server: RunningServer) -> None:
    many = struct.pack(">HL", 0xBEEF, 0) * 2000
    with raw_peer(server.grpc) as peer:
        for _ in range(50):
            peer.send(frame(SETTINGS, 0, 0, many))
        peer.send(frame(PING, 0, 0, b"are you?"))
        assert peer.next(GOAWAY, PING).code == ENHANCE_YOUR_CALM
    still_serves(server)


def test_a_client_that_acknowledges_and_pings_with_each_answer_goes_on(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(headers(1) + frame(DATA, 0, 1, opening()))
        peer.next(DATA)
        for _ in range(1500):
            peer.send(frame(DATA, 0, 1, asking(3)))
            size = len(peer.next(DATA).payload)
            more = frame(WINDOW_UPDATE, 0, 0, word(size)) + frame(WINDOW_UPDATE, 0, 1, word(size))
            peer.send(more + frame(PING, 0, 0, bytes(8)))
        assert peer.answers_ping()


def test_thousands_of_cancelled_calls_that_were_answered_before_are_no_attack(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        for stream in range(1, 6001, 2):
            peer.send(headers(stream, 0, "/no/Such"))
            peer.status(stream)
            peer.send(_reset(stream)[-13:])
        assert peer.answers_ping()


def test_a_frame_about_all_streams_visits_none_of_them(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(b"".join(map(headers, range(1, 18_001, 2))))
        assert peer.answers_ping()
        windows = frame(WINDOW_UPDATE, 0, 0, word(1)) * 900
        settings = b"".join(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, size)) for size in range(900))
        peer.send(windows + settings)
        still_serves(server)
        assert peer.answers_ping()


def test_a_client_that_ignores_the_window_of_a_stream_loses_the_stream(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(headers(1) + frame(DATA, 0, 1, opening()))
        peer.next(DATA)
        # While answers wait, the window does not grow.
        peer.send(frame(SETTINGS, 0, 0, NARROW))
        peer.next(SETTINGS)
        for _ in range(20):
            peer.send(frame(DATA, 0, 1, asking(10_000)))
        assert peer.fault() == (RST_STREAM, FLOW_CONTROL_ERROR)


def test_half_messages_are_taken_up_to_a_bound_and_given_back(server: RunningServer) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    most = 0
    with raw_peer(server.grpc) as peer:
        half, refused = bytes(15_000), 0
        peer.send(b"".join(map(headers, range(1, 201, 2))))
        for _ in range(60):
            for stream in range(1, 201, 2):
                start = b"\0" + word(4 * MIB) if not _ else b""
                peer.send(frame(DATA, 0, stream, start + half))
            most = max(most, process.memory_info().rss)
        peer.send(frame(PING, 0, 0, b"are you?"))
        for found in peer.frames():
            refused += found.kind == HEADERS and b"grpc-status\x018" in found.payload
            if found.kind == PING:
                break
        still_serves(server)
    assert refused
    assert most - before < 80 * MIB
    _shrinks(process, before + 24 * MIB)


def _shrinks(process: psutil.Process, most: int) -> None:
    pause = threading.Event()
    for _ in range(600):
        if process.memory_info().rss < most:
            return
        pause.wait(0.05)
    raise AssertionError(f"{process.memory_info().rss >> 20} MiB, and no less than {most >> 20} MiB")


def test_large_messages_of_many_streams_all_come_through_one_after_the_other(server: RunningServer) -> None:
    from tests.server.grpc.test_http2 import peer as h2_peer  # noqa: PLC0415

    with h2_peer(server) as client:
        client.start(16 * MIB)
        client.h2.increment_flow_control_window(1 << 30)
        client.flush()
        streams = [client.open_session() for _ in range(10)]
        data = asking(500_000)
        left = dict.fromkeys(streams, data)
        while left:
            moved = False
            for stream, rest in list(left.items()):
                room = min(client.h2.local_flow_control_window(stream), client.h2.max_outbound_frame_size, len(rest))
                if room:
                    moved = True
                    client.h2.send_data(stream, rest[:room])
                    client.flush()
                    left[stream] = rest[room:]
                if not left[stream]:
                    del left[stream]
            if left and not moved:
                client.receive()
        assert [len(client.message(stream)) > 4_000_000 for stream in streams] == [True] * 10


def test_a_stream_that_may_already_send_more_is_not_told_so_again_when_another_ends(server: RunningServer) -> None:
    from tests.server.grpc.test_http2 import peer as h2_peer  # noqa: PLC0415

    with h2_peer(server) as client:
        client.start(16 * MIB)
        client.h2.increment_flow_control_window(1 << 30)
        client.flush()
        ending, first, *filling = [client.open_session() for _ in range(6)]
        small, large = asking(80_000), asking(500_000)
        client.send(ending, small[:-100])
        for stream in filling:
            client.send(stream, large[:-100])
        # With the opening message over half of the window, in whole frames: after the last one all is given back.
        begun = 32 * 16_384
        client.send(first, large[:begun])
        client.send(ending, small[-100:])
        assert len(client.message(ending)) > 600_000
        for stream in filling:
            client.send(stream, large[-100:])
            assert len(client.message(stream)) > 4_000_000
        client.send(first, large[begun:])
        assert len(client.message(first)) > 4_000_000


def test_answers_that_are_never_read_are_held_up_to_a_bound(server: RunningServer) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with raw_peer(server.grpc, NARROW) as peer:
        peer.send(b"".join(headers(stream) + frame(DATA, 0, stream, opening()) for stream in range(1, 401, 2)))
        ask = asking(60_000)
        pieces = [ask[at : at + 16_000] for at in range(0, len(ask), 16_000)]
        for stream in range(1, 401, 2):
            peer.send(b"".join(frame(DATA, 0, stream, piece) for piece in pieces))
        assert any(found.kind == HEADERS and b"grpc-status\x018" in found.payload for found in peer.frames())
        still_serves(server)
        assert process.memory_info().rss - before < 90 * MIB
    _shrinks(process, before + 24 * MIB)


def test_idle_sessions_keep_neither_their_last_observation_nor_its_advice(server: RunningServer) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    large = pack(SHAPES.features, {"x": range(500_000)})
    with ExitStack() as stack:
        for address in (server.grpc, server.socket):
            connection = connect(address, timeout=60)
            stack.callback(connection.close)
            for _ in range(30):
                session = connection.open(PolicyReference("echo"), SHAPES, SessionOptions())
                stack.callback(session.close)
                assert len(session.evaluate(large)["advice"][0]) == 500_000
        assert process.memory_info().rss - before < 30 * 4_000_000


def test_a_client_that_never_reads_its_socket_fills_no_memory(server: RunningServer) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with raw_peer(server.grpc, WIDE) as peer:
        peer.send(WIDER + headers(1) + frame(DATA, 0, 1, opening()))
        peer.socket.settimeout(1)
        ask = frame(DATA, 0, 1, asking(2_000))
        with suppress(OSError):
            # Either the server leaves it unread, or it ends the stream, whose windows are ignored.
            peer.socket.sendall(ask * 10_000)
        still_serves(server)
        assert process.memory_info().rss - before < 60 * MIB


def test_large_headers_end_their_connection_and_many_open_calls_are_bounded(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        first = request(SESSION) + literal("x-large", "x" * 3600, indexed=True)
        peer.send(frame(HEADERS, END_HEADERS, 1, first))
        again = request(SESSION) + b"\xbe" * 16
        for stream in range(3, 1003, 2):
            if not peer.send(frame(HEADERS, END_HEADERS, stream, again)):
                break
        assert peer.fault() == (GOAWAY, ENHANCE_YOUR_CALM)
    with raw_peer(server.grpc) as peer:
        block = request(SESSION) + b"\xbe" * 3
        peer.send(frame(HEADERS, END_HEADERS, 1, first))
        peer.send(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in range(3, 6003, 2)))
        assert any(found.kind == HEADERS and b"grpc-status\x018" in found.payload for found in peer.frames())
        still_serves(server)


def test_messages_that_unpack_to_megabytes_let_others_have_their_turns(server: RunningServer) -> None:
    bomb = message(gzip.compress(bytes(8 * MIB)), packed=True)
    with raw_peer(server.grpc) as peer:
        call = frame(HEADERS, END_HEADERS, 1, request(EVALUATE) + literal("grpc-encoding", "gzip"))
        for stream in range(1, 41, 2):
            peer.send(call[:5] + word(stream) + call[9:] + frame(DATA, END_STREAM, stream, bomb))
        still_serves(server)
        peer.send(frame(PING, 0, 0, b"are you?"))
        # The server has not worked off all of it when it has served another client.
        kinds = [found.kind for found in itertools.islice(peer.frames(), 23)]
    assert HEADERS in kinds


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("broken", ["cut", "padded", "empty"])
def test_a_packed_message_that_is_cut_off_or_goes_on_is_refused(
    server: RunningServer, encoding: str, broken: str
) -> None:
    data = opening()[5:]
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    sent = {"cut": packed[:-4], "padded": packed + b"more", "empty": b""}[broken]
    with raw_peer(server.grpc) as peer:
        start = frame(HEADERS, END_HEADERS, 1, request(SESSION) + literal("grpc-encoding", encoding))
        peer.send(start + frame(DATA, 0, 1, message(sent, packed=True)))
        assert peer.status(1)[0] == 3


@pytest.mark.parametrize("character", ["%", "ü", "🙂", "a"])
def test_a_message_of_any_characters_is_no_larger_than_clients_read(server: RunningServer, character: str) -> None:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        call = channel.stream_stream(SESSION, pb.SessionRequest.SerializeToString, pb.SessionResponse.FromString)
        feature = signature_to_pb(SHAPES).features[0]
        feature.name = character * 20_000
        twice = tensor_pb2.Signature(features=[feature, feature], advice=feature)
        opened = pb.Open(policy=pb.PolicyReference(name="echo"), signature=twice)
        with pytest.raises(grpc.RpcError) as failure:
            list(call(iter([pb.SessionRequest(open=opened)]), timeout=60))
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert character * 100 in (failure.value.details() or "")


def test_thousands_of_calls_with_one_deadline_and_their_end_cost_others_little(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        opened = b"".join(headers(stream, 0, SESSION, ("grpc-timeout", "1S")) for stream in range(1, 4001, 2))
        peer.send(opened)
        assert peer.status(3999)[0] == 4
        still_serves(server)
    with raw_peer(server.grpc) as peer:
        watch = frame(DATA, END_STREAM, 1, message(b""))[9:]
        for stream in range(1, 2001, 2):
            peer.send(headers(stream, 0, "/grpc.health.v1.Health/Watch") + frame(DATA, END_STREAM, stream, watch))
        assert peer.answers_ping()
    still_serves(server)


def test_a_message_that_is_begun_and_not_finished_ends_its_call(tmp_path: Path) -> None:
    repository = tmp_path / "policies"
    write_python(repository, "echo", answering("observation['x']"))
    with running_server(repository, tmp_path, "--message-timeout", "0.3") as server, raw_peer(server.grpc) as peer:
        peer.send(headers(1) + frame(DATA, 0, 1, opening()))
        peer.next(DATA)
        peer.send(headers(3) + frame(DATA, 0, 3, opening()[:9]))
        assert peer.status(3)[0] == 4
        peer.send(frame(DATA, 0, 1, asking(2)))
        assert peer.next(DATA).stream == 1


def test_all_connections_together_hold_a_bounded_amount(server: RunningServer) -> None:
    with ExitStack() as stack:
        refused = False
        for _ in range(3):
            peer = stack.enter_context(raw_peer(server.grpc))
            peer.send(b"".join(map(headers, range(1, 81, 2))))
            for begun in range(50):
                start = b"" if begun else b"\0" + word(4 * MIB)
                peer.send(b"".join(frame(DATA, 0, stream, start + bytes(15_000)) for stream in range(1, 81, 2)))
            peer.send(frame(PING, 0, 0, b"are you?"))
            for found in peer.frames():
                refused |= b"max_buffered_bytes" in found.payload
                if found.kind == PING:
                    break
        assert refused
        # A client that asks for little is served all the same.
        still_serves(server)
