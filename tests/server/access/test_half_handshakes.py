"""TLS handshakes that clients begin and leave: they cost the server little, on every port of its own."""

import socket
import ssl
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.repositories import answering, write_python
from tests.server.access.doors import opened
from tests.server.transports.beside import asking
from tests.server.transports.test_memory import MEGABYTE

COUNT = 300


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_handshakes_that_are_left_half_way_cost_little_memory_and_no_decision(tmp_path: Path, door: str) -> None:
    server = Authority(tmp_path / "authority").issue("server")
    write_python(tmp_path / "policies", "inline", answering("observation['x']"), "inline = true")
    path = Path(f"/tmp/pb-half-{door}-{tmp_path.name[-12:]}")
    given = ("--tls-certificate", server.certificate, "--tls-key", server.key, "--socket", path)
    hello = client_hello()
    with opened(tmp_path, *given, doors=(door,)) as doors, asking(f"socket:{path}", "inline") as beside:
        host, _, port = doors.addresses[door].rpartition(":")
        held, before = resident(doors.process.pid), beside.decisions
        with ExitStack() as half:
            for _ in range(COUNT):
                connection = half.enter_context(closing(socket.create_connection((host, int(port)), 60)))
                connection.sendall(hello)
                # The server's answer: it has done the costly part of the handshake.
                assert connection.recv(1)
            assert resident(doors.process.pid) - held < 45 * MEGABYTE
        assert beside.decisions - before > COUNT
    log = (tmp_path / "log").read_text()
    assert "ERROR" not in log
    assert "Traceback" not in log
