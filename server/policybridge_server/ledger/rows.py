"""Records as rows: packed as the tables hold them, so that they can be stored anywhere and sent anywhere."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from policybridge_serdes import Signature
from policybridge_serdes.interactive import header_line
from policybridge_server.ledger.packing import compressed, pack_numbers, pack_outcomes, pack_rows, packed_rows
from policybridge_server.ledger.records import (
    Begun,
    Bulk,
    Ended,
    Labelled,
    Lost,
    Record,
    Reported,
    Resumed,
    Segment,
    Step,
)


class SessionRow(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """A session began.

    ``labels``, ``options`` and ``exploration`` are JSON; the last three are those of `SessionView`.
    """

    session: str
    policy: str
    version: int
    digest: str
    labels: str
    options: str
    exploration: str | None
    opened: float
    file: str
    alias: str = ""
    reporter: str = ""


class SegmentRow(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Decisions of a session, its columns as in packing.py; ``signature`` is LLVM's JSON line."""

    session: str
    first: int
    count: int
    signature: str
    context: str
    observations: bytes
    advices: bytes
    chances: bytes | None
    latencies: bytes


class LostRow(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Decisions of a session that were dropped."""

    session: str
    count: int


class EndRow(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A session ended, with ``failures`` failed evaluations; ``interrupted``: its record has no end."""

    session: str
    when: float
    failures: int = 0
    interrupted: bool = False


class OutcomeRow(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """An outcome; ``values`` is ``None`` if only the earlier rows are to be acknowledged."""

    session: str
    when: float
    status: str
    values: dict[str, float] | None
    contexts: bytes | None
    reporter: str = ""


class StepRow(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Something happened to a roll-out, which is JSON."""

    policy: str
    what: str
    rollout: str
    when: float


class InterruptedRow(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """A writer was killed: the sessions that it left open are over."""

    writer: str
    when: float


class LabelsRow(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """A session has other labels now: JSON, as in `SessionRow`."""

    session: str
    labels: str


Row = SessionRow | SegmentRow | LostRow | EndRow | OutcomeRow | StepRow | InterruptedRow | LabelsRow

REPORTERS: Final = 2000
"""Characters of the names of a session's reporters that are kept."""

_DECODER: Final = msgspec.msgpack.Decoder(list[Row])


def encode(rows: Sequence[Row]) -> bytes:
    """Give rows as bytes."""
    return msgspec.msgpack.encode(rows)


def decode(data: bytes) -> list[Row]:
    """Give the rows of `encode`.

    Raises:
        msgspec.MsgspecError: these are other bytes.

    """
    return _DECODER.decode(data)


def line(reporter: str) -> str:
    """Return a reporter's line among those of a session; none for one that the operator trusts."""
    return f"{reporter}\n" if reporter else ""


class Packer:
    """Packs records."""

    def __init__(self) -> None:
        self._texts: dict[Signature, str] = {}

    def pack(self, record: Record) -> Row:
        """Give the row of a record."""
        match record:
            case Segment():
                return self.segment(record, b"".join(packed_observations(record)))
            case Begun() | Resumed():
                return _session(record)
            case Ended() | Labelled() | Lost():
                return _change(record)
            case Reported():
                return _outcome(record)
            case Step(step):
                return StepRow(step.policy, step.what, _json(step.rollout), step.when)

    def segment(self, segment: Segment, observations: bytes) -> SegmentRow:
        """Give the row of a segment, whose observations are packed."""
        return SegmentRow(
            segment.session_id,
            segment.first,
            len(segment.decisions),
            self._text(segment.signature),
            segment.context,
            observations,
            *_advised(segment),
        )

    def _text(self, signature: Signature) -> str:
        text = self._texts.get(signature)
        if text is None:
            text = self._texts[signature] = header_line(signature).decode().rstrip()
        return text


def packed_observations(segment: Segment) -> Iterator[bytes]:
    """Give the column of a segment's observations in pieces."""
    decisions = segment.decisions
    if isinstance(decisions, Bulk):
        return compressed([part.observations for part in decisions.parts], len(decisions))
    return packed_rows(segment.signature.features, [row for row, *_ in decisions])


def _advised(segment: Segment) -> tuple[bytes, bytes | None, bytes]:
    """Give the columns of a segment's advices, chances and latencies."""
    decisions = segment.decisions
    if isinstance(decisions, Bulk):
        parts = decisions.parts
        columns = b"".join(compressed([part.advices for part in parts], len(decisions)))
        told = b"".join(part.chances for part in parts)
        chances = pack_numbers(np.frombuffer(told, "<f4"), "<f8") if told else None
        # Not np.repeat, which takes five times as long for lists.
        each = np.array([part.nanoseconds for part in parts]).repeat(np.array([part.count for part in parts]))
        return columns, chances, pack_numbers(each, "<i8")
    _, advised, probable, nanoseconds = zip(*decisions, strict=True)
    return (
        pack_rows(segment.signature.advice_layout, advised),
        None if probable[0] is None else pack_numbers(probable, "<f8"),
        pack_numbers(nanoseconds, "<i8"),
    )


def _session(record: Begun | Resumed) -> SessionRow:
    session, policy = record.session, record.session.policy
    return SessionRow(
        session.id,
        policy.name,
        policy.version,
        policy.digest,
        _json(session.labels),
        _json(session.options),
        None if session.exploration is None else _json(session.exploration),
        record.when,
        session.file or "",
        session.alias,
        session.reporter,
    )


def _change(record: Ended | Labelled | Lost) -> EndRow | LabelsRow | LostRow:
    match record:
        case Ended():
            return EndRow(record.session_id, record.when, record.failures, record.interrupted)
        case Labelled():
            return LabelsRow(record.session_id, _json(record.labels))
        case Lost():
            return LostRow(record.session_id, record.count)


def _outcome(record: Reported) -> OutcomeRow:
    outcome = record.outcome
    if outcome is None:
        return OutcomeRow(record.session_id, record.when, "", None, None)
    contexts = pack_outcomes(outcome.contexts) if outcome.contexts else None
    return OutcomeRow(record.session_id, record.when, outcome.status, dict(outcome.values), contexts, record.reporter)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
