"""The client that asks while versions are published: it opens one session after another."""

from dataclasses import dataclass, field

import numpy as np

from policybridge_bench.payloads import SIGNATURE, observations
from policybridge_client.connection import ClientSession, Connection
from policybridge_serdes import PolicyReference, SessionOptions

POLICY = "numbered"
"""Each version of this policy answers a number of its own."""

Version = tuple[int, str]
"""Number and digest of a version."""

_LENGTHS = (*[8] * 50, 400)
"""Decisions of a client's sessions, in turn: many short ones, and one that outlives several versions."""


@dataclass
class ReopeningClient:
    """Opens a session, asks in it, closes it and opens the next.

    Attributes:
        connection: on which the sessions are opened.
        seed: of the observations.
        seen: the numbers that a version answered; more than one would be a mix-up.
        sessions: how many were opened.

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
