"""A server of the Unix socket's protocol that sends what a test says: slowly, never, or wrongly."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

OPENED = b'{"session":"s","policy":"p","version":3,"digest":"sha256:0"}\n'
PAUSE = object()
"""In the bytes that a peer sends: a pause of a fifth of a second."""

Sent = bytes | object


class Peer:
    """Reads the hello and answers it; then ``answers`` observations, where there is a reply; then it closes."""

    def __init__(self, path: Path, opened: tuple[Sent, ...], reply: tuple[Sent, ...], answers: int) -> None:
        self.observed: list[bytes] = []
        self._answers = answers if reply else 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._opened = opened
        self._reply = reply
        self._over = threading.Event()
        self._serving: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            # The client may leave whenever it has seen enough; and may come again where it was left.
            with suppress(OSError):
                peer, _ = self._listener.accept()
                self._serving.append(threading.Thread(target=self._serve, args=(peer,)))
                self._serving[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.recv(1 << 16)
            self._send(peer, self._opened)
            for _ in range(self._answers):
                self.observed.append(peer.recv(1 << 16))
                self._send(peer, self._reply)

    def _send(self, peer: socket.socket, parts: tuple[Sent, ...]) -> None:
        for part in parts:
            if isinstance(part, bytes):
                peer.sendall(part)
            elif self._over.wait(0.2):
                return

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for serving in self._serving:
            serving.join()
