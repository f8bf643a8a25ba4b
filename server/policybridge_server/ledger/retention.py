"""Retention: which sessions of the SQLite ledger go, and the work of removing them, in short steps."""

from typing import Final

from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.database import Database
from policybridge_server.ledger.lifetime import Lifetime

_SESSIONS: Final = 50
_SEGMENTS: Final = 200
_PAGES: Final = 1000
"""In one step, at most: acknowledgements wait for it."""

_LOW: Final = 0.9
"""Part of the bound in bytes to which sessions are dropped, so that this happens from time to time only."""

_SEGMENT: Final = 100
_SESSION: Final = 1000
"""Approximate bytes of a segment and a session besides the segment's columns."""

_OLDEST: Final = "SELECT number FROM sessions WHERE closed IS NOT NULL ORDER BY number LIMIT ?"

_BIRTHS: Final = """
SELECT number, lived FROM sessions JOIN births ON session = number WHERE closed IS NOT NULL ORDER BY number LIMIT ?
"""

_BYTES: Final = """
SELECT coalesce(sum(length(observations) + length(advices) + coalesce(length(chances), 0) + length(latencies) + ?), 0)
+ (SELECT coalesce(sum(length(outcomes)), 0) FROM context_outcomes WHERE session = ?)
FROM segments WHERE session = ?
"""

_DROP: Final = (
    "INSERT INTO dropped (session) VALUES (?)",
    "DELETE FROM outcomes WHERE session = ?",
    "DELETE FROM context_outcomes WHERE session = ?",
    "DELETE FROM births WHERE session = ?",
    "DELETE FROM files WHERE session = ?",
    "DELETE FROM chosen WHERE session = ?",
    "DELETE FROM openers WHERE session = ?",
    "DELETE FROM sessions WHERE number = ?",
)

_REMOVE: Final = "DELETE FROM segments WHERE rowid IN (SELECT rowid FROM segments WHERE session = ? LIMIT ?)"


class Retention:
    """Drops the sessions that began first and are over, while a bound is exceeded.

    The order is that of their numbers, which no clock can change. A session goes at once; its segments are removed
    later, some in each step, so that a large one does not hold up the writer.
    """

    def __init__(self, database: Database, bounds: Bounds, lifetime: Lifetime) -> None:
        self._database = database
        self._bounds = bounds
        self._lifetime = lifetime

    def step(self) -> bool:
        """Do a bounded part of the work; return whether there may be more."""
        with self._database.transaction():
            if self._remove_segments() or self._drop(self._too_old() or self._too_many()):
                return True
        return self._shrink()

    def _remove_segments(self) -> bool:
        row = self._database.run("SELECT session FROM dropped LIMIT 1").fetchone()
        if row is None:
            return False
        if self._database.run(_REMOVE, *row, _SEGMENTS).rowcount < _SEGMENTS:
            self._database.run("DELETE FROM dropped WHERE session = ?", *row)
        return True

    def _too_old(self) -> list[int]:
        if self._bounds.age is None:
            return []
        before = self._lifetime.lived() - self._bounds.age
        return [number for number, lived in self._database.run(_BIRTHS, _SESSIONS) if lived < before]

    def _too_many(self) -> list[int]:
        """Return the oldest sessions whose bytes exceed the bound."""
        used, _ = self._database.size()
        if self._bounds.bytes is None or used <= self._bounds.bytes:
            return []
        excess, numbers = used - _LOW * self._bounds.bytes, list[int]()
        for (number,) in self._database.run(_OLDEST, _SESSIONS).fetchall():
            if excess <= 0:
                break
            excess -= self._database.number(_BYTES, _SEGMENT, number, number) + _SESSION
            numbers.append(number)
        return numbers

    def _drop(self, numbers: list[int]) -> bool:
        for statement in _DROP:
            self._database.run_for_each(statement, [(number,) for number in numbers])
        return bool(numbers)

    def _shrink(self) -> bool:
        """Give free pages back while the file is larger than its bound."""
        used, free = self._database.size()
        if self._bounds.bytes is None or not free or used + free <= self._bounds.bytes:
            return False
        self._database.shrink(_PAGES)
        return self._database.size()[1] < free
