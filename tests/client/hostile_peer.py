"""A gRPC server whose sessions are right up to one request, which it answers as a test says."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from google.protobuf.message import Message

from policybridge.v1 import policy_service_pb2 as pb
from tests.client.accepting import accepting
from tests.server.grpc.raw_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PUSH,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    block,
    frame,
    message,
    word,
)

WIDE: Final = frame(SETTINGS, 0, 0, b"\0\4" + word(2**31 - 1)) + frame(WINDOW_UPDATE, 0, 0, word(2**30))
"""The greeting of a server with windows that hold more than the kernel's buffers."""

OPENED: Final = pb.SessionResponse(
    opened=pb.Opened(
        session_id="s",
        policy=pb.PolicyVersion(name="p", version=1),
        forms={"": pb.FormReference(digest=f"sha256:{0:064x}", bytes=1000)},
    )
)
_HEAD: Final = 9
_PREFIX: Final = 5
_LARGEST: Final = 1 << 14
_RESPONSE: Final = ((":status", "200"), ("content-type", "application/grpc"))
_CODES: Final = (0, 1, 2, 3, 5, 7, 8, 9, 11, 99)


class HostilePeer:
    """One connection of a client.

    Attributes:
        call: the number of the stream of its last call.

    """

    def __init__(self, connection: socket.socket, greeting: bytes) -> None:
        self._socket = connection
        self._stream = connection.makefile("rb")
        self._stream.read(len(PREFACE))
        self._data: dict[int, bytes] = {}
        self._told = False
        self._calls: list[int] = []
        self.call = 0
        self.send(greeting)

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def await_call(self) -> None:
        """Wait for the next call."""
        while not self._calls:
            self._next()
        self.call, self._told = self._calls.pop(0), False

    def await_message(self) -> None:
        """Wait for a message of the call, or its end."""
        while True:
            data = self._data[self.call]
            end = _PREFIX + int.from_bytes(data[1:_PREFIX])
            if len(data) >= max(_PREFIX, end):
                self._data[self.call] = data[end:]
                return
            if self._next().flags & END_STREAM:
                return

    def begin(self) -> None:
        """Send the headers of a response, if there were none yet."""
        if not self._told:
            self.tell()

    def tell(self, *more: tuple[str, str], ends: bool = False) -> None:
        """Send headers: those of a response if there were none yet, and ``more``."""
        fields = block((*(() if self._told else _RESPONSE), *more))
        first, rest = fields[:_LARGEST], range(_LARGEST, len(fields), _LARGEST)
        flags = (END_STREAM if ends else 0) | (0 if rest else END_HEADERS)
        pieces = [frame(HEADERS, flags, self.call, first)]
        for start in rest:
            last = END_HEADERS if start + _LARGEST >= len(fields) else 0
            pieces.append(frame(CONTINUATION, last, self.call, fields[start : start + _LARGEST]))
        self.send(*pieces)
        self._told = True

    def data(self, data: bytes) -> None:
        """Send any bytes as those of messages."""
        self.begin()
        for start in range(0, len(data), _LARGEST) or (0,):
            self.send(frame(DATA, 0, self.call, data[start : start + _LARGEST]))

    def answer(self, response: Message) -> None:
        self.data(message(response.SerializeToString()))

    def leave(self) -> None:
        """Close the connection."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def await_end(self) -> None:
        """Read until the client leaves."""
        with suppress(IndexError):
            while True:
                self._next()

    def _next(self) -> Frame:
        head = self._stream.read(_HEAD)
        size, stream = int.from_bytes(head[:3]), int.from_bytes(head[5:])
        found = Frame(head[3], head[4], stream, self._stream.read(size))
        if found.kind == HEADERS:
            self._calls.append(stream)
            self._data[stream] = b""
        elif found.kind == DATA:
            self._data[stream] += found.payload
            if size:
                self.send(*(frame(WINDOW_UPDATE, 0, each, word(size)) for each in (0, stream)))
        elif found.kind in (SETTINGS, PING) and not found.flags & ACK:
            self.send(frame(found.kind, ACK, 0, found.payload if found.kind == PING else b""))
        return found


Serve = Callable[[HostilePeer], None]


@contextmanager
def hostile(serve: Serve, greeting: bytes = frame(SETTINGS, 0, 0)) -> Iterator[str]:
    """Serve each connection so until the test is over; give the address."""
    over = threading.Event()

    def serve_one(connection: socket.socket) -> None:
        with suppress(IndexError):
            serve(HostilePeer(connection, greeting))
            over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener, accepting(listener, serve_one):
        try:
            yield f"grpc:127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()


def _reset(code: int) -> Serve:
    return lambda peer: peer.send(frame(RST_STREAM, 0, peer.call, word(code)))


def _goaway(code: int, *, counted: bool, leaves: bool) -> Serve:
    def serve(peer: HostilePeer) -> None:
        peer.send(frame(GOAWAY, 0, 0, word(peer.call if counted else 0) + word(code) + b"too_many_pings"))
        if leaves:
            peer.leave()

    return serve


def _end(*fields: tuple[str, str]) -> Serve:
    return lambda peer: peer.tell(*fields, ends=True)


def _packed(encoding: str, data: bytes) -> Serve:
    def serve(peer: HostilePeer) -> None:
        peer.tell(("grpc-encoding", encoding))
        peer.data(message(data, packed=True))

    return serve


def _head_and_leave(peer: HostilePeer) -> None:
    peer.begin()
    peer.leave()


def _cut(peer: HostilePeer) -> None:
    peer.data(message(b"abc", length=10))
    peer.tell(("grpc-status", "0"), ends=True)


FAULTS: Final[Mapping[str, Serve]] = {
    **{f"RST_STREAM {code}": _reset(code) for code in _CODES},
    **{
        f"GOAWAY {code}, {'counted' if counted else 'not counted'}, then it closes": _goaway(
            code, counted=counted, leaves=True
        )
        for code in (0, 11)
        for counted in (True, False)
    },
    "GOAWAY without the call": _goaway(0, counted=False, leaves=False),
    "it closes": HostilePeer.leave,
    "it closes behind its headers": _head_and_leave,
    **{f"status {code!r}": _end(("grpc-status", code)) for code in ("", "x", "0", "1", "14", "99", "-1", f"{2**40}")},
    "no status": _end(("x", "y")),
    **{
        f"message {text[:9]!r}": _end(("grpc-status", "13"), ("grpc-message", text))
        for text in ("", "%zz%", "%ff%fe", "a%00%0a%1b[31m", "é" * 2000, "y" * (1 << 20))
    },
    "a page of HTTP": lambda peer: peer.send(
        frame(HEADERS, END_HEADERS, peer.call, block(((":status", "404"), ("content-type", "text/html"))))
    ),
    "an unknown encoding": _packed("foo", b"abc"),
    "no gzip": _packed("gzip", b"abc"),
    "much gzip": _packed("gzip", gzip.compress(bytes(128 << 20))),
    "a cut message": _cut,
    "a message that is too long": lambda peer: peer.data(message(b"abc", length=2**32 - 1)),
    "an empty message": lambda peer: peer.data(message(b"")),
    "no protobuf": lambda peer: peer.data(message(b"\xff" * 9)),
    "a frame that is too long": lambda peer: peer.send(frame(DATA, 0, peer.call, b"", size=(1 << 24) - 1)),
    "HTTP/1": lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
}
"""Malformed answers and refusals, each of which a client can see at once."""


def _trickle(peer: HostilePeer) -> None:
    peer.data(b"\0\0\0\xff\xff")
    while not threading.Event().wait(0.1):
        peer.data(b"x")


SILENCES: Final[Mapping[str, Serve]] = {
    "silence": HostilePeer.await_end,
    "headers alone": HostilePeer.begin,
    "a GOAWAY that counts the call": _goaway(0, counted=True, leaves=False),
    "a message that trickles": _trickle,
    "a stream of nobody": lambda peer: peer.send(frame(DATA, 0, 77, message(b""))),
    "a push": lambda peer: peer.send(frame(PUSH, END_HEADERS, peer.call, word(2) + block(_RESPONSE))),
    "half a message": lambda peer: peer.data(message(b"abc", length=7)),
}
"""Answers that do not come."""
