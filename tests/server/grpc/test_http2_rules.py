"""RFC 9113 as a server's peer sees it: each rule, by its section, and what breaking it costs."""

import struct
from collections.abc import Iterator

import pytest

from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.grpc.raw_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    EVALUATE,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    REQUEST,
    RST_STREAM,
    SESSION,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Fields,
    block,
    frame,
    headers,
    message,
    raw_peer,
    word,
)

DONE = headers(1, END_STREAM, EVALUATE)
"""A call that the server answers at once, because it has no message."""

WATCH = headers(1, 0, "/grpc.health.v1.Health/Watch") + frame(DATA, END_STREAM, 1, message(b""))
"""A call that the server does not end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering("observation['x']"))
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


def without(*names: str) -> Fields:
    return tuple(field for field in REQUEST if field[0] not in names)


def asking(*fields: tuple[str, str], first: bool = False) -> bytes:
    more = (*fields, *REQUEST) if first else (*REQUEST, *fields)
    return frame(HEADERS, END_HEADERS, 1, block(more))


CONNECTION_ERRORS = {
    "4.2 headers of more than 16 KiB": (frame(HEADERS, END_HEADERS, 1, bytes(20_000)), FRAME_SIZE_ERROR),
    "5.1 idle: RST_STREAM": (frame(RST_STREAM, 0, 1, word(8)), PROTOCOL_ERROR),
    "5.1 idle: WINDOW_UPDATE": (frame(WINDOW_UPDATE, 0, 1, word(8)), PROTOCOL_ERROR),
    "5.1 closed: HEADERS after END_STREAM": (DONE + DONE, STREAM_CLOSED),
    "5.1 closed: HEADERS after RST_STREAM": (
        headers(1) + frame(RST_STREAM, 0, 1, word(8)) + headers(1),
        STREAM_CLOSED,
    ),
    "5.1.1 a number that was left out": (headers(5) + headers(3), PROTOCOL_ERROR),
    "6.3 PRIORITY on no stream": (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "6.3 PRIORITY of four bytes": (headers(1) + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "6.4 RST_STREAM on no stream": (frame(RST_STREAM, 0, 0, word(8)), PROTOCOL_ERROR),
    "6.4 RST_STREAM of three bytes": (headers(1) + frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "6.5 an acknowledgement with settings": (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "6.5 SETTINGS on a stream": (frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "6.5.2 ENABLE_PUSH of 2": (frame(SETTINGS, 0, 0, struct.pack(">HL", 2, 2)), PROTOCOL_ERROR),
    "6.5.2 frames of 16 MiB": (frame(SETTINGS, 0, 0, struct.pack(">HL", 5, 1 << 24)), PROTOCOL_ERROR),
    "6.7 PING on a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.8 GOAWAY on a stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.8 GOAWAY of four bytes": (frame(GOAWAY, 0, 0, bytes(4)), FRAME_SIZE_ERROR),
    "6.9 a window that grows by nothing": (frame(WINDOW_UPDATE, 0, 0, word(0)), PROTOCOL_ERROR),
    "6.10 CONTINUATION on another stream": (
        frame(HEADERS, 0, 1, block(REQUEST)) + frame(CONTINUATION, END_HEADERS, 3),
        PROTOCOL_ERROR,
    ),
}

STREAM_ERRORS = {
    "5.1 half-closed: DATA": (WATCH + frame(DATA, 0, 1, b"data"), STREAM_CLOSED),
    "5.1 half-closed: HEADERS": (WATCH + headers(1), STREAM_CLOSED),
    "5.1 closed: DATA after RST_STREAM": (
        headers(1) + frame(RST_STREAM, 0, 1, word(8)) + frame(DATA, 0, 1, b"data"),
        STREAM_CLOSED,
    ),
    "5.1 closed: DATA after END_STREAM": (DONE + frame(DATA, 0, 1, b"data"), STREAM_CLOSED),
    "5.1.2 more streams than allowed": (b"".join(map(headers, range(1, 20_003, 2))), REFUSED_STREAM),
    "5.3.1 HEADERS depend on themselves": (
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, word(1) + b"\0" + block(REQUEST)),
        PROTOCOL_ERROR,
    ),
    "5.3.1 PRIORITY depends on itself": (headers(1) + frame(PRIORITY, 0, 1, word(1) + b"\0"), PROTOCOL_ERROR),
    "6.9 a stream's window grows by nothing": (headers(1) + frame(WINDOW_UPDATE, 0, 1, word(0)), PROTOCOL_ERROR),
    "6.9.1 a stream's window above 2 GiB": (
        headers(1) + frame(WINDOW_UPDATE, 0, 1, word(2**31 - 1)),
        FLOW_CONTROL_ERROR,
    ),
    "8.1 HEADERS that are no trailers": (headers(1) + frame(HEADERS, END_HEADERS, 1, block((("a", "b"),))), 1),
    "8.1 trailers with a pseudo-header": (
        headers(1) + frame(HEADERS, END_HEADERS | END_STREAM, 1, block(((":method", "POST"),))),
        PROTOCOL_ERROR,
    ),
    "8.1.1 a content-length that is too large": (
        headers(1, 0, SESSION, ("content-length", "7")) + frame(DATA, END_STREAM, 1, b"\0\0"),
        PROTOCOL_ERROR,
    ),
    "8.1.1 a content-length that two frames do not have": (
        headers(1, 0, SESSION, ("content-length", "7")) + frame(DATA, 0, 1, b"\0") + frame(DATA, END_STREAM, 1, b"\0"),
        PROTOCOL_ERROR,
    ),
    "8.1.1 two content-lengths": (asking(("content-length", "7"), ("content-length", "8")), PROTOCOL_ERROR),
    "8.1.1 a content-length below nothing": (asking(("content-length", "-1")), PROTOCOL_ERROR),
    "8.2.1 a name in upper case": (asking(("X-Test", "ok")), PROTOCOL_ERROR),
    "8.2.1 a name of nothing": (asking(("", "ok")), PROTOCOL_ERROR),
    "8.2.1 a value with a line end": (asking(("x-test", "o\r\nk")), PROTOCOL_ERROR),
    "8.2.2 connection": (asking(("connection", "keep-alive")), PROTOCOL_ERROR),
    "8.2.2 transfer-encoding": (asking(("transfer-encoding", "chunked")), PROTOCOL_ERROR),
    "8.2.2 te": (frame(HEADERS, END_HEADERS, 1, block((*without("te"), ("te", "trailers, deflate")))), 1),
    "8.3 an unknown pseudo-header": (asking((":test", "ok"), first=True), PROTOCOL_ERROR),
    "8.3 a pseudo-header of answers": (asking((":status", "200"), first=True), PROTOCOL_ERROR),
    "8.3 a pseudo-header after others": (
        frame(HEADERS, END_HEADERS, 1, block((*without(":path"), (":path", SESSION)))),
        PROTOCOL_ERROR,
    ),
    "8.3.1 an empty path": (frame(HEADERS, END_HEADERS, 1, block(((":path", ""), *without(":path")))), 1),
    "8.3.1 no method": (frame(HEADERS, END_HEADERS, 1, block(without(":method"))), PROTOCOL_ERROR),
    "8.3.1 no scheme": (frame(HEADERS, END_HEADERS, 1, block(without(":scheme"))), PROTOCOL_ERROR),
    "8.3.1 no path": (frame(HEADERS, END_HEADERS, 1, block(without(":path"))), PROTOCOL_ERROR),
    "8.3.1 two methods": (asking((":method", "POST"), first=True), PROTOCOL_ERROR),
    "8.3.1 two schemes": (asking((":scheme", "http"), first=True), PROTOCOL_ERROR),
    "8.3.1 two paths": (asking((":path", SESSION), first=True), PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("data", "code"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS.keys())
def test_what_breaks_a_rule_of_the_connection_ends_it_with_the_rules_code(
    server: RunningServer, data: bytes, code: int
) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(data)
        assert peer.fault() == (GOAWAY, code)
        assert not list(peer.frames())


@pytest.mark.parametrize(("data", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS.keys())
def test_what_breaks_a_rule_of_a_stream_ends_that_stream_alone(server: RunningServer, data: bytes, code: int) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(data)
        assert peer.fault() == (RST_STREAM, code)
        assert peer.answers_ping()


@pytest.mark.parametrize(
    "greeting",
    [b"INVALID CONNECTION PREFACE\r\n\r\n", PREFACE + frame(PING, 0, 0, bytes(8))],
    ids=["no-preface", "ping"],
)
def test_what_does_not_begin_with_the_preface_and_settings_is_refused(server: RunningServer, greeting: bytes) -> None:
    with raw_peer(server.grpc, greeting=greeting) as peer:
        assert peer.fault() == (GOAWAY, PROTOCOL_ERROR)


def test_a_client_is_not_blamed_for_data_that_was_under_way_when_its_call_was_answered(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(headers(1, 0, "/no/Such") + frame(DATA, 0, 1, bytes(100)) + frame(WINDOW_UPDATE, 0, 1, word(9)))
        assert peer.status(1)[0] == 12
        peer.send(frame(DATA, END_STREAM, 1, bytes(100)) + frame(RST_STREAM, 0, 1, word(8)))
        assert peer.answers_ping()


def test_priorities_and_unknown_frames_are_ignored(server: RunningServer) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(frame(PRIORITY, 0, 9, bytes(5)) + frame(0xBE, 0xFF, 7, b"an extension") + DONE)
        assert peer.status(1)[0] == 3
        assert peer.answers_ping()


@pytest.mark.parametrize("timeout", ["-1S", "1", "S", "1x", "123456789S", "1" * 400 + "S", "1.5S", "\u0661S"])
def test_a_timeout_that_cannot_be_read_is_an_error_of_its_call_alone(server: RunningServer, timeout: str) -> None:
    with raw_peer(server.grpc) as peer:
        peer.send(headers(1, 0, SESSION, ("grpc-timeout", timeout)))
        assert peer.status(1)[0] == 3
        assert peer.answers_ping()
