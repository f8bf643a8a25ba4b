"""No door is built without the budget of its client's peer."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import policybridge_server
from policybridge_server.budget import PeerBudget
from policybridge_server.grpc.http2.connection import Http2Connection
from policybridge_server.grpc.session import Caller
from policybridge_server.open_inference.http_guest import HttpGuest
from policybridge_server.transports.contract import TRANSPORTS
from policybridge_server.transports.conversation import Conversation
from policybridge_server.transports.socket_session import SocketSession

ROOT = Path(policybridge_server.__file__).parent

DOORS = ("grpc", "mlbridge", "open_inference", "page", "telemetry", "transports")

SERVED_BY = {"grpc": Http2Connection, "http": HttpGuest, "socket": SocketSession, "pipe": Conversation}
"""The transport → the class of its connections, or a base of that class."""

APART = {
    "grpc/replication_service.py": "a replica with the scope `replicate` reads files",
    "grpc/http2/plain_methods.py": "each call of a servicer that blocks has a thread of its own",
    "mlbridge/grpc/decoding.py": "one large request of all clients at a time",
}
"""The files that hand work to threads without a peer, and why."""


def called(name: str) -> Iterator[str]:
    """Give the files of the doors that call a method or function of this name."""
    for package in DOORS:
        for file in (ROOT / package).rglob("*.py"):
            calls = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
            if any(isinstance(call, ast.Attribute) and call.attr == name for call in calls):
                yield str(file.relative_to(ROOT))


def test_every_transport_names_the_class_of_its_connections_here() -> None:
    assert SERVED_BY.keys() | {"grpcio"} == TRANSPORTS.own.keys()


@pytest.mark.parametrize("kind", SERVED_BY.values(), ids=SERVED_BY)
def test_a_connection_is_not_made_without_the_budget_of_its_peer(kind: type) -> None:
    parameters = inspect.signature(kind).parameters.values()
    assert any(each.annotation in (PeerBudget, Caller) and each.default is each.empty for each in parameters)


def test_one_place_accepts_the_connections_of_all_doors() -> None:
    assert list(called("accept")) == ["transports/listener.py"]


def test_work_of_clients_goes_to_threads_by_their_peers_share() -> None:
    assert {*called("to_thread"), *called("run_in_executor")} <= APART.keys()
