"""A gRPC server that leaves just as a call comes: it refuses the call unseen (GOAWAY), and ends the connection."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.server.grpc.raw_peer import GOAWAY, HEADERS, PREFACE, SETTINGS, frame

_HEAD = 9
_PIECE = 1 << 16


@contextmanager
def leaving(successor: int | None = None, times: int = 1) -> Iterator[int]:
    """Give the port; the first ``times`` connections are to such a server.

    Later ones reach the port ``successor``, and without one they are refused.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, successor, times), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # It wakes the thread that accepts.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, successor: int | None, times: int) -> None:
    with suppress(OSError):
        for _ in range(times):
            _refuse(listener, last=successor is None)
        while successor is not None:
            near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", successor))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=ends, daemon=True).start()


def _refuse(listener: socket.socket, *, last: bool) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.sendall(frame(SETTINGS, 0, 0))
        _await_call(peer)
        if last:
            listener.close()
        peer.sendall(frame(GOAWAY, 0, 0, bytes(8)))


def _await_call(peer: socket.socket) -> None:
    with peer.makefile("rb") as stream:
        stream.read(len(PREFACE))
        while (head := stream.read(_HEAD))[3] != HEADERS:
            stream.read(int.from_bytes(head[:3]))


def _carry(source: socket.socket, target: socket.socket) -> None:
    with source, suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
