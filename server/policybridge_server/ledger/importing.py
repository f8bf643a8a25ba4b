"""Sessions from training logs, such as those of an LLVM in development mode, into a ledger."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np

from policybridge_core.errors import InvalidError
from policybridge_serdes import Layout, Outcome, PolicyVersion, Signature
from policybridge_serdes.training_log import LoggedObservation, LogHeader, TrainingLogReader
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.clock import SystemClock
from policybridge_server.ledger.contract import Store
from policybridge_server.ledger.records import Begun, DecisionRecord, Ended, Record, Reported, Segment

_DECISIONS: Final = 256
"""In a segment, at most."""

STATUS: Final = "imported"
"""The outcome's status of sessions from a log with a score."""

Reward = Literal["sum", "last"]
"""How the rewards of a context become its session's outcome."""


@dataclass(frozen=True)
class Origin:
    """The properties of sessions that a log lacks.

    Attributes:
        policy: the policy of the sessions.
        labels: the sessions' labels.
        reward: how the rewards of a context become its session's outcome.

    """

    policy: PolicyVersion
    labels: Mapping[str, str]
    reward: Reward


@dataclass
class _Session:
    id: str
    context: str
    step: int = 0
    rewards: list[float] = field(default_factory=list)
    waiting: list[DecisionRecord] = field(default_factory=list)


def import_log(store: Store, file: Path, origin: Origin) -> tuple[int, int]:
    """Write each context of a log into a ledger as a session; either all of them or none.

    The log's last feature is the decision, as LLVM writes it; or the one that its header names as the advice. The
    outcome has the name of the log's score.

    Returns:
        The numbers of sessions and of decisions.

    Raises:
        InvalidError: the file is no training log, is cut off, or has no decisions in it.
        UnavailableError: the ledger cannot be written.

    """
    with file.open("rb") as data:
        log = TrainingLogReader(data)
        # A label is text; a file's name may be any bytes.
        name = os.fsencode(file).decode("utf-8", "backslashreplace")
        reading = _Reading(log.header, {"log": name, **origin.labels}, origin)
        for observation in log:
            reading.take(observation)
    records = reading.records()
    for error in store.write(records).values():
        raise error
    return len(reading.sessions), sum(session.step for session in reading.sessions.values())


class _Reading:
    def __init__(self, header: LogHeader, labels: Mapping[str, str], origin: Origin) -> None:
        self.sessions: dict[str, _Session] = {}
        self._signature = _signature(header)
        self._wide = self._signature.features.size
        self._score = None if header.score is None else header.score.name
        self._labels, self._origin = labels, origin
        self._when = SystemClock().now().wall
        self._records: list[Record] = []

    def take(self, logged: LoggedObservation) -> None:
        session = self.sessions.get(logged.context) or self._begun(logged.context)
        data = logged.values.tobytes()
        advice = np.ndarray(1, self._signature.advice_layout.dtype, data[self._wide :])
        session.waiting.append((data[: self._wide], advice, None, 0))
        if logged.reward is not None:
            session.rewards.append(float(logged.reward.sum()))
        if len(session.waiting) == _DECISIONS:
            self._settle(session)

    def records(self) -> list[Record]:
        """Give all records; call this once, at the end."""
        for session in self.sessions.values():
            self._settle(session)
            if session.rewards and self._score is not None:
                total = sum(session.rewards) if self._origin.reward == "sum" else session.rewards[-1]
                self._records.append(Reported(session.id, Outcome({self._score: total}, STATUS), self._when))
            self._records.append(Ended(session.id, self._when))
        return self._records

    def _begun(self, context: str) -> _Session:
        session = self.sessions[context] = _Session(uuid.uuid4().hex, context)
        view = SessionView(session.id, self._origin.policy, context, labels=self._labels)
        self._records.append(Begun(view, self._when))
        return session

    def _settle(self, session: _Session) -> None:
        if session.waiting:
            first, session.step = session.step + 1, session.step + len(session.waiting)
            size = len(session.waiting) * self._wide
            decisions, session.waiting = session.waiting, []
            self._records.append(Segment(session.id, first, self._signature, session.context, decisions, size))


def _signature(header: LogHeader) -> Signature:
    specs = header.features.specs
    if header.advice is not None and (not specs or specs[-1].name != header.advice.name):
        raise InvalidError(
            f"the log has no decisions: its last feature is not {header.advice.name!r}, which its header names as the "
            "advice. LLVM's interactive channel has no decisions; its logs of the development mode have"
        )
    if len(specs) < 2:
        raise InvalidError("a log has one feature at least, and the decision as the last one")
    return Signature(Layout(specs[:-1]), specs[-1])
