"""What an attack costs the others: a session on the Unix socket beside it, and the processor's time of the server."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HELLO: Final = b'{"policybridge":1,"policy":"%s"}\n'
HEADER: Final = (
    b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1]}],'
    b'"advice":{"name":"advice","type":"int64_t","port":0,"shape":[1]}}\n'
)


class Beside:
    """A session that asks one decision after the other.

    Attributes:
        decisions: how many were answered so far.

    """

    def __init__(self, path: str, policy: str) -> None:
        self.decisions = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(HELLO % policy.encode())
        assert b'"session"' in self._file.readline()
        self._socket.sendall(HEADER)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            self._socket.sendall(b'{"observation":%d}\n' % self.decisions + bytes(8) + b"\n")
            assert self._file.read(9)[:1] == b"\0"
            self.decisions += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._file.close()
        self._socket.close()


@contextmanager
def asking(address: str, policy: str) -> Iterator[Beside]:
    """Ask the policy, which answers any int64_t, on ``socket:PATH`` while the block runs."""
    beside = Beside(address.removeprefix("socket:"), policy)
    try:
        yield beside
    finally:
        beside.close()


def processor_seconds(pid: int) -> float:
    """Give the seconds for which a process has used the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
