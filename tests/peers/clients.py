"""Clients beside those of `policybridge_bench.clients`: the model alone, and sessions while versions are published.

python -m tests.peers.clients LOAD
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from policybridge_bench.clients import Ask
from policybridge_bench.load import Load, run_load, tell
from policybridge_bench.payloads import SIGNATURE, observations, payload
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_serdes import PolicyReference, SessionOptions
from tests.peers.model import evaluation

PROGRAM: Final = "tests.peers.clients"
_TIMEOUT: Final = 30.0

POLICY: Final = "numbered"
"""Each version of this policy answers a number of its own."""

Version = tuple[int, str]
"""Number and digest of a version."""

_LENGTHS: Final = (*[8] * 50, 400)
"""Decisions of a client's sessions, in turn: many short sessions, and one that outlives several versions."""


class Published(msgspec.Struct, frozen=True):
    """The answers to a client while versions were published.

    Attributes:
        seen: version, digest, and the numbers that the version answered.
        sessions: number of opened sessions.

    """

    seen: list[tuple[int, str, set[int]]]
    sessions: int


def model(load: Load) -> Ask:
    """Evaluate the model in this process; the address is the folder of policies."""
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

    def published(self) -> Published:
        """Give what it saw."""
        return Published([(*version, numbers) for version, numbers in self.seen.items()], self.sessions)


KINDS: Mapping[str, Callable[[Load], Ask]] = {"model": model, "publish": publish}


def main() -> None:
    """Ask, and print the report."""
    load = msgspec.json.decode(sys.argv[1], type=Load)
    ask = KINDS[load.kind](load)
    report, latencies = run_load(ask, load)
    if isinstance(ask, ReopeningClient):
        more = msgspec.Raw(msgspec.json.encode(ask.published()))
        report = msgspec.structs.replace(report, more=more)
    tell(report, latencies)


if __name__ == "__main__":
    main()
