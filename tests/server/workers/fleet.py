"""A server with two workers, as tests see it: which worker has a session, and which processes there are."""

import http.client
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_serdes import PolicyReference, SessionOptions
from tests.conftest import RunningServer
from tests.server.publishing.policies import SIGNATURE

WORKERS = 2


def worker_of(session: ClientSession) -> str:
    """Tell the worker that has a session: its process's mark ends the id."""
    return session.id[-8:]


def workers(server: RunningServer) -> list[int]:
    """Give the processes that serve, in the order of their start."""
    parent = server.process.pid
    return [int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def opened(stack: ExitStack, address: str, policy: str = "adder") -> tuple[Connection, ClientSession]:
    """Open a session on a connection of its own."""
    connection = connect(address, timeout=60)
    stack.callback(connection.close)
    session = connection.open(PolicyReference.parse(policy), SIGNATURE, SessionOptions())
    stack.callback(session.close)
    return connection, session


def on_all(stack: ExitStack, *addresses: str, policy: str = "adder") -> list[ClientSession]:
    """Open four sessions, and more until each worker has one: a worker that waits for a core comes late."""
    found: list[ClientSession] = []
    while len(found) < 4 or len(spread(found)) < WORKERS:
        assert len(found) < 40, "one worker takes all"
        found.append(opened(stack, addresses[len(found) % len(addresses)], policy)[1])
    return found


@contextmanager
def sessions(server: RunningServer, each: int, policy: str = "adder") -> Iterator[list[ClientSession]]:
    """Open so many sessions over the socket, and as many over gRPC, each on a connection of its own."""
    with ExitStack() as stack:
        yield [opened(stack, address, policy)[1] for _ in range(each) for address in (server.socket, server.grpc)]


def asked(server: RunningServer, path: str) -> Any:
    """Ask the server's HTTP port."""
    address = next(each for each in server.others if each.startswith("http:"))
    connection = http.client.HTTPConnection(address.removeprefix("http:"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == 200, data
    return json.loads(data) if path.startswith("/page") else data.decode()


def metric(server: RunningServer, name: str) -> float:
    """Add up a metric over its labels."""
    values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", asked(server, "/metrics"), re.MULTILINE)
    return sum(map(float, values))


def spread(found: list[ClientSession]) -> list[int]:
    """Give how many sessions each worker has."""
    return sorted(Counter(map(worker_of, found)).values())
