"""Segments with large observations, written into SQLite's file piece by piece.

SQLite copies a value three times before it writes it, and a statement keeps the last value that it was given. So a row
gets zeros in the place of its values, and each value is written over them. Zeros take no memory if only zeros follow.
"""

from collections.abc import Callable, Iterator
from typing import Final

from policybridge_server.ledger.database import Database
from policybridge_server.ledger.rows import SegmentRow

LARGE_SEGMENT: Final = 1 << 20
"""Bytes of a segment, not packed, above which it is written in pieces."""

_ADD: Final = """
INSERT INTO segments (session, first, count, signature, context, observations, advices, chances, latencies)
VALUES (?1, ?2, ?3, ?4, ?5, zeroblob(?6), zeroblob(?7), iif(?8 IS NULL, NULL, zeroblob(?8)), zeroblob(?9))
"""


def add_large(
    database: Database, session: int, row: SegmentRow, signature: int, observations: Callable[[], Iterator[bytes]]
) -> None:
    """Add a segment.

    Args:
        database: of the segments.
        session: the number of its session.
        row: the segment's, without observations.
        signature: its number.
        observations: gives the column in pieces. It is called twice: the first time for the size.

    """
    size = sum(map(len, observations()))
    rest = {"advices": row.advices, "chances": row.chances, "latencies": row.latencies}
    sizes = [None if column is None else len(column) for column in rest.values()]
    # Not INSERT … SELECT, which makes zeros real.
    added = database.run(_ADD, session, row.first, row.count, signature, row.context, size, *sizes)
    columns = {"observations": observations(), **{name: [each] for name, each in rest.items() if each is not None}}
    for name, pieces in columns.items():
        database.fill("segments", name, int(added.lastrowid or 0), pieces)
