"""Sessions as lines for people, and the message for a filter without matches."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from policybridge_core.errors import NotFoundError
from policybridge_core.text import meant, printable
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader

_HEADS: Final = ("SESSION", "OPENED", "POLICY", "DECISIONS", "STATUS", "LABELS")
_NUMBER: Final = 3
_ID: Final = 12
_MEASURED: Final = 1000
"""Number of rows that set the columns' widths; later rows may be wider."""

_NARROWEST: Final = 12
COMMAND: Final = "compilation"
"""The label that is a whole command: it fits no column, and ``sessions show`` has it."""

_KNOWN: Final = 20
"""Names that an error lists."""


def table(sessions: Iterable[SessionRecord], width: int | None) -> Iterator[str]:
    """Give a head and a line for each session; ``width``: characters of a line, ``None``: no limit."""
    rows = map(_row, sessions)
    first = list(itertools.islice(rows, _MEASURED))
    widths = [max(map(len, column)) for column in zip(_HEADS, *first, strict=True)]
    for row in itertools.chain([_HEADS], first, rows):
        yield _line(row, widths, width)


def _row(session: SessionRecord) -> Sequence[str]:
    opened = datetime.fromtimestamp(session.opened, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = " ".join(f"{name}={value}" for name, value in session.labels.items() if name != COMMAND)
    policy = f"{session.policy.name}@{session.policy.version}"
    return session.id[:_ID], opened, policy, str(session.decisions), printable(session.status), printable(labels)


def _line(row: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    cells = [
        cell.rjust(size) if index == _NUMBER else cell.ljust(size)
        for index, (cell, size) in enumerate(zip(row, widths, strict=True))
    ]
    *others, labels = cells
    line = "  ".join(others)
    if width is not None:
        room = max(_NARROWEST, width - len(line) - 2)
        labels = labels if len(labels.rstrip()) <= room else f"{labels[: room - 1]}…"
    return f"{line}  {labels}".rstrip()


def check_filters(reader: LedgerReader, query: Query) -> None:
    """Check that each part of a query by itself is met by some session of the ledger.

    Raises:
        NotFoundError: no session has such a policy, label or status; the message lists the existing ones.

    """
    policies, statuses, labels = set[str](), set[str](), set[str]()
    for session in reader.sessions():
        policies.add(session.policy.name)
        statuses.add(session.status)
        labels |= session.labels.keys()
    _check("of the policy", query.policy, policies)
    _check("with the status", query.status, statuses)
    for name in query.labels:
        _check("with a label", name, labels)


def _check(what: str, wanted: str | None, known: set[str]) -> None:
    if wanted is None or wanted in known:
        return
    listed = ", ".join(sorted(map(printable, known))[:_KNOWN]) or "none"
    raise NotFoundError(f"the ledger has no session {what} {wanted!r}; {meant(wanted, known)}it has {listed}")
