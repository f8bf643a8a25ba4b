"""Many connections of one peer share its turns, and no frame of theirs is lost."""

import socket
import struct
from contextlib import ExitStack
from pathlib import Path

from tests.attacks.wire import PREFACE, SETTINGS, frame
from tests.conftest import ServerFactory
from tests.server.ledger.asking import ask, open_network, rows, write_policies

CONNECTIONS = 20
PINGS = 1500
PING = 6
ACK = 1


def pings(flags: int) -> bytes:
    return b"".join(frame(PING, flags, 0, struct.pack(">Q", number)) for number in range(PINGS))


def received(connection: socket.socket, wanted: bytes) -> bool:
    """Read until ``wanted`` has come in one piece."""
    taken = bytearray()
    while wanted not in taken:
        piece = connection.recv(1 << 16)
        if not piece:
            return False
        taken += piece
    return True


def test_connections_that_send_a_lot_at_once_get_all_their_answers_in_order_beside_another_session(
    tmp_path: Path, server_factory: ServerFactory
) -> None:
    write_policies(tmp_path)
    server = server_factory(tmp_path)
    host, _, port = server.grpc.removeprefix("grpc:").rpartition(":")
    session = open_network(server.socket)
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(CONNECTIONS)]
        for connection in opened:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + pings(0))
        ask(session, rows(3))
        assert all(received(connection, pings(ACK)) for connection in opened)
    session.close()
