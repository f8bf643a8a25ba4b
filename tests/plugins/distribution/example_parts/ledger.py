"""A kind of ledger that keeps sessions as lines of JSON, without their decisions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_serdes import PolicyVersion
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.records import Begun, Record
from policybridge_server.ledger.trajectory import DecisionBatch


class LinesLedger:
    """Opens a file of lines."""

    def open_store(self, path: Path, bounds: Bounds) -> "LinesStore":
        """Open the file for writing."""
        return LinesStore(path)

    def open_reader(self, path: Path) -> "LinesReader":
        """Open the file for reading."""
        return LinesReader(path)


class LinesStore:
    """Writes a line for each session."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write the sessions that began."""
        for record in records:
            if isinstance(record, Begun):
                told = {"id": record.session.id, "policy": record.session.policy.name, "opened": record.when}
                self._file.write(json.dumps(told) + "\n")
        self._file.flush()
        return {}

    def prune(self) -> None:
        """Keep all."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LinesReader:
    """Reads the lines."""

    def __init__(self, path: Path) -> None:
        try:
            self._lines = path.read_text().splitlines()
        except OSError as error:
            raise UnavailableError(str(error)) from error

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions of the policy that is meant."""
        for number, line in enumerate(self._lines):
            session = _record(number, json.loads(line))
            if query.policy in (None, session.policy.name):
                yield session

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give nothing: decisions are not kept."""
        return iter(())

    def context_outcomes(self, session: SessionRecord) -> dict[str, dict[str, float]]:
        """Give nothing: they are not kept."""
        return {}

    def close(self) -> None:
        """Give nothing back: the file is closed."""


def _record(number: int, told: dict[str, Any]) -> SessionRecord:
    return SessionRecord(
        number=number,
        id=told["id"],
        policy=PolicyVersion(told["policy"], 1, ""),
        labels={},
        options={},
        exploration=None,
        opened=told["opened"],
        closed=None,
        interrupted=False,
        decisions=0,
        lost=0,
        outcome=None,
    )
