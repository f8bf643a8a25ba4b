"""The clients in Python: they send one observation after another, as a compiler does.

    python -m policybridge_bench.clients LOAD

LOAD is a `Load` in JSON; its kind is one of `KINDS`.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import msgspec
import numpy as np

from policybridge_bench.load import Load, run_load, tell
from policybridge_bench.payloads import SIGNATURE, observations, payload
from policybridge_bench.requests import EVALUATE, messages, read_messages
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.grpc import GrpcConnection
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_serdes.interactive import header_line

_TIMEOUT: Final = 30.0
_REPLY: Final = 9

POLICY: Final = "numbered"
"""Each version of this policy answers a number of its own."""

Version = tuple[int, str]
"""Number and digest of a version."""

_LENGTHS: Final = (*[8] * 50, 400)
"""Decisions of a client's sessions, in turn: many short sessions, and one that outlives several versions."""

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


def model(load: Load) -> Ask:
    """Evaluate the model in this process; the address is the folder of policies."""
    from policybridge_bench.model import evaluation  # noqa: PLC0415 - other clients need no backend

    asking = payload(load.payload)
    return evaluation(Path(load.address), load.policy, asking.signature, asking.observations())


def publish(load: Load) -> Ask:
    """Ask in one session after another, while versions are published."""
    return ReopeningClient(connect(load.address, timeout=_TIMEOUT), os.getpid())


@dataclass
class ReopeningClient:
    """Opens a session, asks in it, closes it and opens the next.

    Attributes:
        connection: on which the sessions are opened.
        seed: of the observations.
        seen: the advice of each version; more than one number for a version is a mix-up.
        sessions: number of opened sessions.

    """

    connection: Connection
    seed: int = 1
    seen: dict[Version, set[int]] = field(default_factory=dict)
    sessions: int = 0
    _session: ClientSession | None = None
    _left: int = 0

    def __post_init__(self) -> None:
        rows = observations(64, self.seed)
        self._values = [np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()) for row in rows]

    def __call__(self, number: int) -> None:
        """Ask for one decision, with the observation of this number.

        Raises:
            PolicyBridgeError: the session could not be opened, or there is no answer.

        """
        session = self._session or self._open()
        advice = session.evaluate(self._values[number % len(self._values)])
        answered = int(advice[SIGNATURE.advice.name].item())
        self.seen.setdefault((session.policy.version, session.policy.digest), set()).add(answered)
        self._left -= 1
        if not self._left:
            self.close()

    def close(self) -> None:
        """Close the open session."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _open(self) -> ClientSession:
        self._session = self.connection.open(PolicyReference(POLICY), SIGNATURE, SessionOptions())
        self._left = _LENGTHS[self.sessions % len(_LENGTHS)]
        self.sessions += 1
        return self._session


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
    "model": model,
    "publish": publish,
    "wire": wire,
    "unary": unary,
    "echo-unary": unary,
    "echo-stream": session,
}


def main() -> None:
    """Ask, and print the report."""
    load = msgspec.json.decode(sys.argv[1], type=Load)
    ask = KINDS[load.kind](load)
    report, latencies = run_load(ask, load)
    if isinstance(ask, ReopeningClient):
        seen = [(*version, numbers) for version, numbers in ask.seen.items()]
        report = msgspec.structs.replace(report, seen=seen, sessions=ask.sessions)
    tell(report, latencies)


if __name__ == "__main__":
    main()
