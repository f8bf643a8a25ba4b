"""The clients in Python: they send one observation after another, as a compiler does.

    python -m policybridge_bench.clients LOAD

LOAD is a `Load` in JSON; its kind is one of `KINDS`.
"""

import json
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import grpc
import msgspec

from policybridge_bench.load import Load, run_load, tell
from policybridge_bench.payloads import payload
from policybridge_bench.requests import EVALUATE, messages, read_messages
from policybridge_client.connection import connect
from policybridge_client.contract import Connection
from policybridge_client.grpc import GrpcConnection
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_serdes.interactive import header_line

_TIMEOUT: Final = 30.0
_REPLY: Final = 9

Ask = Callable[[int], None]


def session(load: Load) -> Ask:
    """Ask in a session of the Python client."""
    asking = payload(load.payload)
    opened = _connect(load).open(PolicyReference(load.policy), asking.signature, SessionOptions())
    values = asking.observations()

    def ask(number: int) -> None:
        opened.evaluate(values[number % len(values)])

    return ask


def evaluate(load: Load) -> Ask:
    """Ask without a session, one unary call for each decision."""
    asking, connection = payload(load.payload), _grpc(load)
    values, layout, advice = asking.observations(), asking.signature.features, asking.signature.advice
    reference = PolicyReference(load.policy)

    def ask(number: int) -> None:
        connection.evaluate_once(reference, layout, values[number % len(values)], advice)

    return ask


def wire(load: Load) -> Ask:
    """Send prepared bytes on a bare socket; without a policy the server is an echo, which expects no header."""
    connection = _connected(load)
    if load.policy:
        connection.sendall(json.dumps({"policybridge": 1, "policy": load.policy}).encode() + b"\n")
        connection.makefile("rb", buffering=0).readline()
        connection.sendall(header_line(payload(load.payload).signature))
    lines = messages(load)
    reply = bytearray(_REPLY)

    def ask(number: int) -> None:
        connection.sendall(lines[number % len(lines)])
        if connection.recv_into(reply) != _REPLY or reply[0]:
            raise SystemExit(
                f"instead of an advice came, from {load.address}: {bytes(reply)!r}{connection.recv(1000)!r}"
            )

    return ask


def unary(load: Load) -> Ask:
    """Make unary gRPC calls with prepared messages, and ignore the replies."""
    call = grpc.insecure_channel(load.address.removeprefix("grpc:")).unary_unary(load.method or EVALUATE, None, None)
    requests = read_messages(Path(load.file)) if load.file else messages(load)

    def ask(number: int) -> None:
        call(requests[number % len(requests)], timeout=_TIMEOUT)

    return ask


def _connect(load: Load) -> Connection:
    return _grpc(load) if load.address.startswith("grpc:") else connect(load.address, timeout=_TIMEOUT)


def _grpc(load: Load) -> GrpcConnection:
    return GrpcConnection(load.address.removeprefix("grpc:"), _TIMEOUT, serdes=load.serdes)


def _connected(load: Load) -> socket.socket:
    scheme, _, target = load.address.partition(":")
    if scheme == "tcp":
        host, _, port = target.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(target)
    return connection


KINDS: Mapping[str, Callable[[Load], Ask]] = {
    "session": session,
    "evaluate": evaluate,
    "evaluate-tensors": unary,
    "wire": wire,
    "unary": unary,
    "echo-unary": unary,
    "echo-stream": session,
}


def main() -> None:
    """Ask, and print the report."""
    load = msgspec.json.decode(sys.argv[1], type=Load)
    tell(*run_load(KINDS[load.kind](load), load))


if __name__ == "__main__":
    main()
