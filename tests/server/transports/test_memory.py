"""What strangers send must not stay with the server."""

import re
import socket
from contextlib import suppress
from pathlib import Path

from tests.conftest import RunningServer, ServerFactory
from tests.repositories import answering, write_python

MEGABYTE = 1 << 20
HELLO = b'{"policybridge":1,"policy":"echo"}\n'
WIDE = b'{"features":[{"name":"x","type":"int64_t","shape":[%d]}],"advice":{"name":"a","type":"int64_t","shape":[1]}}\n'
GARBAGE = [
    b"\xff" * MEGABYTE,
    b"{" * MEGABYTE + b"\n",
    HELLO + b"[" * MEGABYTE,
    HELLO + WIDE % (1 << 29),
    HELLO + WIDE % (1 << 16) + b'{"observation":0}\n' + bytes(MEGABYTE // 4),
    HELLO + b'{"features":[' + b'{"name":"x","type":"int64_t","shape":[1]},' * 10_000,
]


def resident(server: RunningServer) -> int:
    """Give the bytes of memory that the server holds."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def send_all(server: RunningServer, pieces: list[bytes]) -> None:
    for piece in pieces:
        with socket.socket(socket.AF_UNIX) as peer, suppress(BrokenPipeError, ConnectionResetError):
            peer.connect(server.socket.removeprefix("socket:"))
            peer.sendall(piece)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass


def test_garbage_and_broken_sessions_leave_nothing_behind(tmp_path: Path, server_factory: ServerFactory) -> None:
    write_python(tmp_path, "echo", answering("observation['x'][0]"))
    server = server_factory(tmp_path)
    send_all(server, GARBAGE * 3)
    before = resident(server)
    send_all(server, GARBAGE * 50)
    assert resident(server) - before < 16 * MEGABYTE
