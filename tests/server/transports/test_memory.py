"""What strangers send must not stay with the server."""

import asyncio
import gc
import re
import socket
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from policybridge_server.access import Access
from policybridge_server.config import make_config
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.session import Session
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository
from policybridge_server.transports.contract import Host
from policybridge_server.transports.socket import SocketTransport
from policybridge_server.transports.socket_session import SocketSession
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


def test_a_session_that_has_ended_leaves_no_objects_for_which_python_must_look(tmp_path: Path) -> None:
    write_python(tmp_path, "echo", answering("observation['x'][0]"))
    engine = Engine(Repository([tmp_path]), allow_python=True)
    opener = SessionOpener(engine)
    publisher = Publisher(opener, allowed=False, keep_versions=1)

    async def left(path: str) -> int:
        config = make_config(None, {"socket": [path], "repository": [str(tmp_path)]})
        transport, loop = SocketTransport(path), cast("Loop", asyncio.get_running_loop())
        await transport.start(Host(opener, publisher, loop, config, Access(config)))
        answer = await asyncio.to_thread(talk, path, HELLO + WIDE % 1 + b'{"end":true}\n')
        assert answer.endswith(b'\0{"recorded":true}\n')
        await transport.stop(60)
        return sum(isinstance(each, SocketSession | Session) for each in gc.get_objects())

    with (
        closing(engine),
        closing(publisher),
        TemporaryDirectory(prefix="pb-") as folder,
        asyncio.Runner(loop_factory=lambda: cast("asyncio.AbstractEventLoop", Loop(engine.flush))) as runner,
    ):
        gc.collect()
        gc.disable()
        try:
            assert runner.run(left(f"{folder}/s")) == 0
        finally:
            gc.enable()


def talk(path: str, words: bytes) -> bytes:
    """Send words to a socket; give the answer to its end."""
    with socket.socket(socket.AF_UNIX) as peer, peer.makefile("rb") as answers:
        peer.connect(path)
        peer.sendall(words)
        return answers.read()
