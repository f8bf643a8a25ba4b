"""HTTP answers that are not read."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories import answering, write_python
from tests.server.access.doors import Doors, opened
from tests.server.publishing.policies import wait_for

SIZE = 1 << 24


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    write_python(folder / "policies", "large", answering(f"__import__('numpy').zeros({SIZE}, 'uint8')"))
    with opened(folder, "--message-timeout", 2, doors=("http",)) as doors:
        yield doors


def ask(client: socket.socket) -> None:
    advice = json.dumps({"name": "y", "type": "uint8_t", "shape": [SIZE]})
    given = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [1]}
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    body = json.dumps({"inputs": [given], "outputs": outputs, "parameters": {"advice": advice}}).encode()
    head = f"POST /v2/models/large/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)


def connected(doors: Doors) -> socket.socket:
    host, _, port = doors.addresses["http"].rpartition(":")
    client = socket.socket()
    client.settimeout(60)
    # The kernel would hold most of an answer otherwise.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.connect((host, int(port)))
    return client


def connections(doors: Doors) -> int:
    return sum(is_socket(link) for link in Path(f"/proc/{doors.process.pid}/fd").iterdir())


def is_socket(link: Path) -> bool:
    try:
        return str(link.readlink()).startswith("socket:")
    except FileNotFoundError:
        # It was closed since the folder was read.
        return False


def test_a_large_answer_comes_whole_and_the_connection_goes_on(doors: Doors) -> None:
    with connected(doors) as client:
        answers = client.makefile("rb")
        for _ in range(2):
            ask(client)
            assert answers.readline().startswith(b"HTTP/1.1 200"), answers.read(500)
            size = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                size = int(value) if name.lower() == "content-length" else size
            assert size > SIZE
            assert len(answers.read(size)) == size


def test_a_client_that_does_not_read_its_answer_is_closed(doors: Doors) -> None:
    with connected(doors) as client:
        ask(client)
        first = client.recv(100)
        assert first.startswith(b"HTTP/1.1 200")
        read, before = len(first), connections(doors)
        # The kernel's buffers hold some of it; the server keeps the rest for the time of a message and no longer.
        wait_for(lambda: connections(doors) < before)
        while piece := client.recv(1 << 20):
            read += len(piece)
        assert read < SIZE
