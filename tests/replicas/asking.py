"""Clients of one server: session after session; each is told on standard output when it is over."""

import itertools
import random
import sys
import time
from typing import Final

import msgspec
import numpy as np

from policybridge_client.connection import connect
from policybridge_client.contract import Connection
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec

POLICY: Final = "numbered"
SIGNATURE: Final = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))

_PAUSE: Final = 0.002
"""Seconds that a compiler works between two decisions, on average."""


class SessionSeen(msgspec.Struct):
    """One session.

    Attributes:
        server: its number.
        version: that answered.
        digest: of the version.
        numbers: that the version added, all of them; more than one would be two versions.
        decisions: how many there were.
        error: why there are no more, where it did not end by itself.

    """

    server: int
    version: int
    digest: str
    numbers: list[int]
    decisions: int
    error: str = ""


def main() -> None:
    """Ask the server at the given socket: ``NUMBER SOCKET DECISIONS``."""
    server, address, decisions = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    chance = random.Random(server)
    with connect(address, timeout=20) as connection:
        while True:
            seen = _session(connection, server, decisions, chance)
            if seen is None:
                # The server is being started again.
                time.sleep(0.05)
            else:
                print(msgspec.json.encode(seen).decode(), flush=True)


def _session(connection: Connection, server: int, decisions: int, chance: random.Random) -> SessionSeen | None:
    dtype = SIGNATURE.features.dtype
    try:
        session = connection.open(PolicyReference(POLICY), SIGNATURE, SessionOptions())
    except PolicyBridgeError:
        return None
    seen = SessionSeen(server, session.policy.version, session.policy.digest, [], 0)
    numbers: set[int] = set()
    try:
        for x in itertools.islice(itertools.count(), decisions):
            advice = session.evaluate(np.ndarray(1, dtype, x.to_bytes(8, "little")))
            numbers.add(int(advice["advice"].item()) - x)
            seen.decisions += 1
            time.sleep(chance.uniform(0, 2 * _PAUSE))
        session.close()
    except PolicyBridgeError as error:
        seen.error = str(error)
    seen.numbers = sorted(numbers)
    return seen


if __name__ == "__main__":
    main()
