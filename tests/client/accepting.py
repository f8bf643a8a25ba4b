"""Servers of tests that answer each connection as no server should."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def accepting(listener: socket.socket, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serve each connection in a thread of its own, and close all in the end; an OSError ends one of them."""
    opened = list[socket.socket]()

    def serve_one(peer: socket.socket) -> None:
        # The client leaves in the middle of anything.
        with suppress(OSError):
            serve(peer)

    def run() -> None:
        with suppress(OSError):
            while True:
                opened.append(listener.accept()[0])
                threading.Thread(target=serve_one, args=(opened[-1],), daemon=True).start()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        # It may accept one more until then, which is closed as the others.
        thread.join()
        for each in opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
