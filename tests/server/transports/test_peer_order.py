"""A peer that floods a door: the place of another client's request in the order of service, as the policy counts it."""

import http.client
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import RunningServer, running_server
from tests.repositories import write_python
from tests.server.transports.beside import HEADER, HELLO

FLOOD = 400

IN_ORDER = """
class Policy:
    count = 0

    def evaluate(self, observation, session):
        if "counted" in session.options:
            self.count += 1
        return self.count
"""

MEANWHILE = f"""
import socket


class Policy:
    other = None

    def evaluate(self, observation, session):
        if session.context and self.other is None:
            # Another client comes while the first of many observations is answered.
            self.other = socket.socket(socket.AF_UNIX)
            self.other.connect(session.context)
            self.other.sendall({HELLO % b"meanwhile" + HEADER + b'{"observation":0}' + bytes([10, *bytes(8), 10])!r})
            self.served, self.asked = 0, 0
        if session.context:
            self.asked += 1
        elif self.other is not None:
            self.served = self.asked
            self.other.close()
        return self.served if self.other is not None else 0
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "in-order", IN_ORDER, "inline = true")
    write_python(repository, "meanwhile", MEANWHILE, "inline = true")
    folder = tmp_path_factory.mktemp("s")
    with running_server(repository, folder, "--http", "127.0.0.1:0") as running:
        yield running


def test_a_client_that_comes_while_hundreds_of_waiting_observations_are_answered_is_served_among_them(
    server: RunningServer,
) -> None:
    path = server.socket.removeprefix("socket:")
    with socket.socket(socket.AF_UNIX) as flood:
        flood.settimeout(60)
        flood.connect(path)
        answers = flood.makefile("rb")
        flood.sendall(json.dumps({"policybridge": 1, "policy": "meanwhile", "context": path}).encode() + b"\n")
        answers.readline()
        observation = b'{"observation":0}\n' + bytes(8) + b"\n"
        flood.sendall(HEADER + FLOOD * observation)
        advice = [struct.unpack("<xq", answers.read(9))[0] for _ in range(FLOOD)]
        answers.close()
    # The other client has to be accepted and its session to be opened first: some turns, of one observation each.
    assert 0 < advice[-1] < FLOOD // 4


def connected(server: RunningServer, stack: ExitStack, source: str) -> http.client.HTTPConnection:
    address = next(each for each in server.others if each.startswith("http:")).removeprefix("http:")
    client = http.client.HTTPConnection(address, timeout=60, source_address=(source, 0))
    stack.callback(client.close)
    client.request("GET", "/v2/health/live")
    client.getresponse().read()
    return client


def place(client: http.client.HTTPConnection) -> int:
    answer = json.loads(client.getresponse().read())
    return int(answer["outputs"][0]["data"][0])


def test_a_request_over_http_beside_those_of_hundreds_of_connections_of_another_address_overtakes_most_of_them(
    server: RunningServer,
) -> None:
    advice = json.dumps({"name": "y", "type": "int64_t", "shape": [1]})
    inputs = [{"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [1]}]
    body = json.dumps({"inputs": inputs, "parameters": {"advice": advice, "counted": "yes"}})
    with ExitStack() as stack:
        flood = [connected(server, stack, "127.0.0.1") for _ in range(FLOOD)]
        other = connected(server, stack, "127.0.0.2")
        # The server finds all requests in one turn of its loop.
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)
        for client in (*flood[: FLOOD // 2], other, *flood[FLOOD // 2 :]):
            client.request("POST", "/v2/models/in-order/infer", body)
        server.process.send_signal(signal.SIGCONT)
        assert place(other) < FLOOD // 4
        assert max(map(place, flood)) == FLOOD + 1
