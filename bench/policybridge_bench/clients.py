"""A closed-loop client in a process of its own: one observation after another, as a compiler asks.

    python -m policybridge_bench.clients KIND ADDRESS POLICY SECONDS

KIND is ``session`` (the Python client), ``echo`` (a bare socket), or ``wire`` (a bare socket that speaks the socket's
protocol). Prints ``ready``, waits for a line, so that many can begin together, and prints JSON: the latencies in µs.
"""

import json
import socket
import sys
import time
from collections.abc import Callable

import numpy as np

from policybridge_bench.network import SIGNATURE, observations
from policybridge_client.connection import connect
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_serdes.interactive import header_line, observation_lines

_REPLY = 9
_WARM_UP = 200


def measure(ask: Callable[[int], None], seconds: float) -> list[float]:
    """Ask for ``seconds`` after a warm-up and the word to begin; give the latencies in µs."""
    for number in range(_WARM_UP):
        ask(number)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    latencies: list[float] = []
    number, clock = 0, time.perf_counter
    end = clock() + seconds
    while (started := clock()) < end:
        ask(number)
        latencies.append((clock() - started) * 1e6)
        number += 1
    return latencies


def session(address: str, policy: str) -> Callable[[int], None]:
    """Ask by the Python client."""
    opened = connect(address).open(PolicyReference(policy), SIGNATURE, SessionOptions())
    dtype = SIGNATURE.features.dtype
    values = [np.ndarray(1, dtype, row.tobytes()) for row in observations(1024)]

    def ask(number: int) -> None:
        opened.evaluate(values[number % 1024])

    return ask


def wire(address: str, policy: str) -> Callable[[int], None]:
    """Ask by bytes made beforehand; without a policy, of a bare echo."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address.removeprefix("socket:"))
    if policy:
        connection.sendall(json.dumps({"policybridge": 1, "policy": policy}).encode() + b"\n")
        connection.makefile("rb", buffering=0).readline()
        connection.sendall(header_line(SIGNATURE))
    lines = [observation_lines(number, row.tobytes(), fixed=True) for number, row in enumerate(observations(1024))]
    reply = bytearray(_REPLY)

    def ask(number: int) -> None:
        connection.send(lines[number % 1024])
        if connection.recv_into(reply) != _REPLY or reply[0]:
            raise SystemExit(f"no advice came from {address}")

    return ask


if __name__ == "__main__":
    kind, address, policy, seconds = sys.argv[1:]
    ask = session(address, policy) if kind == "session" else wire(address, policy if kind == "wire" else "")
    json.dump(measure(ask, float(seconds)), sys.stdout)
