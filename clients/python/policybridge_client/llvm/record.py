"""What the host tells the ledger of a compilation: enough to repeat it, and what it came to."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from policybridge_client.connection import Connection
from policybridge_client.llvm.statistics import Report
from policybridge_core.errors import DeadlineError, InvalidError, PolicyBridgeError, UnavailableError
from policybridge_core.text import is_unicode
from policybridge_serdes import Outcome

LABEL: Final = "compilation"
"""The label that holds a `Compilation`."""

OBJECT: Final = "object_digest"
"""The outcome that holds `object_digest`."""

_DIGITS: Final = 13
"""Hexadecimal digits of a SHA-256 that a float64, which every outcome is, holds exactly."""


class Compilation(msgspec.Struct, frozen=True):
    """How a compiler was started.

    Attributes:
        command: its words, without what the host adds to them.
        cwd: its folder.
        task: what it was told to ask.
        growth_limit: after which it stops asking.

    """

    command: list[str]
    cwd: str
    task: str
    growth_limit: str

    def to_labels(self) -> dict[str, str]:
        """Give the label; none where a word is no Unicode text, and cannot be sent."""
        words = [*self.command, self.cwd]
        return {LABEL: msgspec.json.encode(self).decode()} if all(map(is_unicode, words)) else {}

    @classmethod
    def from_label(cls, text: str) -> "Compilation":
        """Read the label.

        Raises:
            InvalidError: it is none.

        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise InvalidError(f"the label {LABEL!r} does not say how a compiler was started: {error}") from error


def output_place(arguments: Sequence[str]) -> int | None:
    """Find which of a compiler's arguments names its output; ``None`` where none does."""
    places = [place + 1 for place, word in enumerate(arguments[:-1]) if word in ("-o", "--o")]
    return places[-1] if places else None


def object_digest(file: Path) -> float | None:
    """Give the first 52 bits of a file's SHA-256, ``None`` where there is no such file."""
    if not file.is_file():
        return None
    return float(int(hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGITS], 16))


def report_outcome(connection: Connection, report: Report, cwd: Path | str | None) -> None:
    """Tell the ledger what a compilation came to, if there is one and it can be reached; nothing depends on it."""
    sessions, failure = report.statistics.sessions, report.statistics.failure
    if not sessions or isinstance(failure, UnavailableError | DeadlineError):
        # Who did not answer a moment ago would only be waited for once more.
        return
    with suppress(PolicyBridgeError, OSError):
        outcome = _outcome(report, cwd)
        for session_id in sessions:
            connection.report_outcome(session_id, outcome)


def _outcome(report: Report, cwd: Path | str | None) -> Outcome:
    counted = report.statistics
    values: dict[str, float] = {
        "exit_status": report.status,
        "seconds": report.seconds,
        "asked": counted.decisions,
        "defaults": counted.defaults,
        "sessions": len(counted.sessions),
        "headers": counted.headers,
    }
    place = output_place(report.command)
    digest = None if place is None else object_digest(Path(cwd or ".") / report.command[place])
    if digest is not None and not report.status:
        values[OBJECT] = digest
    return Outcome(values, _status(report))


def _status(report: Report) -> str:
    if report.error is not None:
        return "error"
    if report.status:
        return "failed"
    return "ok" if report.fallback is None else "fallback"
