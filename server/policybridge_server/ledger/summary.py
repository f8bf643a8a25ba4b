"""Summaries of a ledger for people, computed by the database without reading whole sessions."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_server.ledger.contract import load_ledger
from policybridge_server.ledger.place import Place, parse_place
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.table_reader import TableReader
from policybridge_server.ledger.trajectory import DecisionBatch
from policybridge_server.repository.conditions import FAILED
from policybridge_server.repository.rollout import Rollout, RolloutStep

_TOTALS: Final = """
SELECT count(*) AS sessions, CAST(coalesce(sum(decisions), 0) AS BIGINT) AS decisions,
CAST(coalesce(sum(lost), 0) AS BIGINT) AS lost, CAST(coalesce(sum(interrupted), 0) AS BIGINT) AS interrupted,
count(reported) AS reported, count(*) - count(closed) AS open FROM sessions
"""

_VERSIONS: Final = """
SELECT policy, version, count(*) AS sessions, CAST(sum(decisions) AS BIGINT) AS decisions,
count(reported) AS reported, count(CASE WHEN reported IS NOT NULL AND status NOT IN ('', 'ok') THEN 1 END) AS failed
FROM sessions GROUP BY policy, version ORDER BY policy, version
"""

_NAMES: Final = """
SELECT outcomes.name AS name, count(*) AS count FROM sessions JOIN outcomes ON outcomes.session = sessions.number
WHERE sessions.policy = ? AND sessions.version = ? GROUP BY outcomes.name ORDER BY count DESC, outcomes.name LIMIT ?
"""

_STEPS: Final = """
SELECT * FROM rollout_steps WHERE CAST(? AS TEXT) IS NULL OR policy = ? ORDER BY number DESC LIMIT ?
"""

_FROM: Final = "SELECT * FROM segments WHERE session = ? AND first + count > ? ORDER BY first"


@dataclass(frozen=True)
class VersionSums:
    """A version in the ledger: numbers of its sessions, of those with an outcome, and of failed ones."""

    policy: str
    version: int
    sessions: int
    decisions: int
    reported: int
    failed: int


class Value(NamedTuple):
    """An outcome of a file with one version, of the session ``number``, by the word of ``reporters``."""

    file: str
    version: int
    number: int
    value: float
    reporters: frozenset[str]


@dataclass(frozen=True)
class Values:
    """An outcome of both versions of a roll-out."""

    base: int
    version: int
    values: Sequence[Value]

    @property
    def reporters(self) -> Counter[str]:
        """How many of the values each reporter has a part in."""
        return Counter(reporter for value in self.values for reporter in value.reporters)

    def pairs(self, without: frozenset[str] = frozenset()) -> npt.NDArray[np.float64]:
        """Give the last value of each file that both versions have compiled, in base and version; shape [n, 2].

        Args:
            without: reporters whose sessions are left out.

        """
        last: dict[tuple[str, int], Value] = {}
        for value in self.values:
            key = (value.file, value.version)
            if not value.reporters & without and (key not in last or last[key].number < value.number):
                last[key] = value
        both = [
            (value.value, last[file, self.version].value)
            for (file, version), value in last.items()
            if version == self.base and (file, self.version) in last
        ]
        return np.array(both, np.float64).reshape(-1, 2)


@runtime_checkable
class Summary(Protocol):
    """Reads summaries; each call sees one state of the ledger. Used by one thread. Errors are those of `Reader`."""

    def totals(self) -> tuple[Mapping[str, int], Sequence[VersionSums]]:
        """Give the numbers of sessions, decisions and so on of the whole ledger, and those of each version."""

    def newest(self, query: Query, before: int | None, most: int) -> Sequence[tuple[SessionRecord, str]]:
        """Return sessions and their files, newest first: at most ``count``, of those with a lower number."""

    def decisions(self, session: SessionRecord, first: int, most: int) -> Sequence[DecisionBatch]:
        """Give batches of a session's decisions that hold at least those from step ``first`` on, ``most`` of them."""

    def steps(self, policy: str | None, most: int) -> Sequence[RolloutStep]:
        """Give the last steps of roll-outs, the newest first."""

    def values(self, policy: str, rollout: Rollout, name: str) -> "Values":
        """Give the last value of an outcome for each file, version and set of reporters.

        Sessions count that asked for the alias of the roll-out, so that the server chose their version, and did not
        explore. A session fails if its status is neither ``ok`` nor empty, if one of its evaluations failed, or if its
        server was killed.
        """

    def outcome_names(self, policy: str, version: int, most: int) -> Sequence[str]:
        """Name the outcomes that most sessions of the version have."""

    def size(self) -> int:
        """Give the ledger's bytes on disk."""

    def close(self) -> None:
        """Close the files."""


class TableSummary(TableReader):
    """Implements `Summary`."""

    _failures: str
    """The column of the evaluations that failed."""

    @abstractmethod
    def _values(self, value: str, join: str, counts: str) -> str:
        """Give the statement that finds the last value for each file, version and set of reporters; see `values`."""

    @abstractmethod
    def _file(self, row: Any) -> str:
        """Return a session's file."""

    def totals(self) -> tuple[Mapping[str, int], Sequence[VersionSums]]:
        """Give the numbers of the ledger and of each version."""
        with self._transaction():
            (row,) = self._rows(_TOTALS)
            return dict(row), [VersionSums(**dict(each)) for each in self._rows(_VERSIONS)]

    def newest(self, query: Query, before: int | None, most: int) -> Sequence[tuple[SessionRecord, str]]:
        """Give the newest sessions."""
        condition, values = self._condition(query)
        # Conditions are our own texts; what clients sent is passed separately.
        statement = f"SELECT * FROM sessions WHERE number < ? AND {condition} ORDER BY number DESC LIMIT ?"  # noqa: S608
        with self._transaction():
            rows = self._rows(statement, (1 << 62) if before is None else before, *values, most)
            return [(self._session(row), self._file(row)) for row in rows]

    def decisions(self, session: SessionRecord, first: int, most: int) -> Sequence[DecisionBatch]:
        """Give batches of a session's decisions."""
        batches, held = list[DecisionBatch](), 0
        with self._transaction():
            for row in self._stream(_FROM, session.number, first):
                batches.append(self._segment(session, row))
                held += row["first"] + row["count"] - max(first, row["first"])
                if held >= most:
                    break
        return batches

    def steps(self, policy: str | None, most: int) -> Sequence[RolloutStep]:
        """Give the last steps of roll-outs."""
        with self._transaction():
            rows = self._rows(_STEPS, policy, policy, most) if self._has("rollout_steps") else []
        return [
            RolloutStep(row["policy"], row["what"], msgspec.json.decode(row["rollout"], type=Rollout), row["at"])
            for row in rows
        ]

    def values(self, policy: str, rollout: Rollout, name: str) -> "Values":
        """Give an outcome of both versions by file."""
        failed = name == FAILED
        join = "" if failed else "JOIN outcomes ON outcomes.session = sessions.number AND outcomes.name = ?"
        value, counts = "outcomes.value", "sessions.reported IS NOT NULL"
        if failed:
            value = f"CASE WHEN sessions.status NOT IN ('', 'ok') OR {self._failures} > 0 OR sessions.interrupted > 0 "
            value += "THEN 1 ELSE 0 END"
            counts = "(sessions.reported IS NOT NULL OR sessions.closed IS NOT NULL)"
        statement, names = self._values(value, join, counts), [] if failed else [name]
        with self._transaction():
            given = (*names, policy, rollout.base, rollout.version, rollout.alias)
            rows = self._rows(statement, *given) if self._has("chosen") else []
        return Values(rollout.base, rollout.version, [_value(row) for row in rows])

    def outcome_names(self, policy: str, version: int, most: int) -> Sequence[str]:
        """Name the outcomes of a version."""
        with self._transaction():
            return [str(row["name"]) for row in self._rows(_NAMES, policy, version, most)]


def _value(row: Any) -> Value:
    reporters = frozenset(row["reporters"].split("\n")) - {""}
    return Value(str(row["name"]), row["version"], row["number"], float(row["value"]), reporters)


class _Summarized(Protocol):
    def open_summary(self, place: Place) -> Summary: ...


def open_summary(place: str | Path, kind: str | None = None) -> Summary:
    """Open a ledger for its summaries.

    Raises:
        NotFoundError: there is no such kind of ledger.
        UnsupportedError: this kind has no summaries.
        UnavailableError: the ledger cannot be read.

    """
    parsed = parse_place(place)
    ledger: Any = load_ledger(parsed, kind)
    if not hasattr(ledger, "open_summary"):
        raise UnsupportedError(f"ledgers of the kind {kind!r} have no summaries")
    return cast("_Summarized", ledger).open_summary(parsed)
