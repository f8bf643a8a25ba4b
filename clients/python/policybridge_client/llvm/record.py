"""The host's record of a compilation in the ledger: how to repeat it, and its outcome."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from policybridge_client.contract import ClientSession, Connection, conclude
from policybridge_client.llvm.compilers import CompilerCommand, Kind, clang_output, sources_of
from policybridge_client.llvm.languages import source_language
from policybridge_client.llvm.statistics import Report
from policybridge_core.errors import DeadlineError, InvalidError, PolicyBridgeError, UnavailableError
from policybridge_core.text import is_unicode
from policybridge_serdes import Outcome

LABEL: Final = "compilation"
"""The label that holds a `Compilation`."""

OBJECT: Final = "object_digest"
"""The outcome that holds `object_digest`."""

_DIGITS: Final = 13
"""Hexadecimal digits of a SHA-256 that a float64 holds exactly; every outcome value is a float64."""


class Compilation(msgspec.Struct, frozen=True):
    """How a compiler was started.

    Attributes:
        command: the compiler and its arguments, without the flags that the host adds.
        cwd: the folder in which it ran.
        task: the name of the task.
        growth_limit: the factor of the module's size that the policy may add to it.

    """

    command: list[str]
    cwd: str
    task: str
    growth_limit: str

    def to_labels(self) -> dict[str, str]:
        """Return the label; empty if an argument is not valid Unicode and so cannot be sent."""
        words = [*self.command, self.cwd]
        return {LABEL: msgspec.json.encode(self).decode()} if all(map(is_unicode, words)) else {}

    @classmethod
    def from_label(cls, text: str) -> "Compilation":
        """Read the label.

        Raises:
            InvalidError: the label is malformed.

        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise InvalidError(f"the label {LABEL!r} does not describe the start of a compiler: {error}") from error


def scope_labels(compiler: CompilerCommand) -> dict[str, str]:
    """Return the labels that a policy's scope is compared with: ``level``, ``phase`` and, if known, ``language``.

    The phase is compile, pre-link or link. There are no labels where opt or llc runs, or a response file may hold the
    options.
    """
    words = compiler.arguments
    if compiler.kind in (Kind.OPT, Kind.LLC) or any(word.startswith("@") for word in words):
        return {}
    lto = [word for word in words if word in ("-flto", "-fno-lto") or word.startswith("-flto=")]
    phase = "compile" if lto[-1:] in ([], ["-fno-lto"]) else "pre-link"
    labels = {"level": str(compiler.level), "phase": "link" if compiler.is_thinlto_backend else phase}
    command = [*compiler.start, *words]
    languages = {source_language(source, command) for source in sources_of(words)}
    # One session decides for all sources; if their languages differ, it has none.
    language = languages.pop() if len(languages) == 1 else ""
    return {**labels, "language": language} if language else labels


def output_index(arguments: Sequence[str]) -> int | None:
    """Return the index of the argument that names the output; ``None`` if there is none."""
    indices = [index + 1 for index, word in enumerate(arguments[:-1]) if word in ("-o", "--o")]
    return indices[-1] if indices else None


def output_file(command: Sequence[str]) -> str:
    """Give the file that a compiler's command writes: that after ``-o``, or clang's default.

    It is empty if the command does not name one file.
    """
    index = output_index(command)
    if index is not None:
        return command[index]
    compiler = CompilerCommand.of(command)
    return clang_output(compiler.arguments) if compiler.kind in (Kind.CLANG, Kind.ZIG) else ""


def object_digest(file: Path) -> float | None:
    """Return the first 52 bits of a file's SHA-256, ``None`` if the file does not exist."""
    if not file.is_file():
        return None
    return float(int(hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGITS], 16))


def report_outcome(
    connection: Connection, report: Report, cwd: Path | str | None, session: ClientSession | None = None
) -> None:
    """Report the outcome to the ledger. Ignore failures: there may be no ledger, and the server may be away.

    Args:
        connection: to the server.
        report: of the compilation.
        cwd: the compiler's folder.
        session: the last one of the compilation, if it is still open; it ends with its outcome.

    """
    sessions, failure = list(report.statistics.sessions), report.statistics.failure
    with suppress(PolicyBridgeError, OSError):
        outcome = _outcome(report, cwd)
        if session is not None and _is_concluded(session, outcome):
            sessions.pop()
        if isinstance(failure, UnavailableError | DeadlineError):
            # The server has just timed out; do not wait for it again.
            return
        for session_id in sessions:
            connection.report_outcome(session_id, outcome)


def _is_concluded(session: ClientSession, outcome: Outcome) -> bool:
    """End a session with its outcome; whether its server has answered, perhaps that it keeps no outcomes."""
    try:
        conclude(session, outcome)
    except UnavailableError:
        # Another server with the same ledger may have come in its place.
        return False
    except PolicyBridgeError:
        return True
    return True


def _outcome(report: Report, cwd: Path | str | None) -> Outcome:
    counted = report.statistics
    values: dict[str, float] = {
        "exit_status": report.status,
        "seconds": report.seconds,
        "asked": counted.decisions,
        "defaults": counted.defaults,
        "limited": counted.limited,
        "sessions": len(counted.sessions),
        "headers": counted.headers,
    }
    output = output_file(report.command)
    digest = object_digest(Path(cwd or ".") / output) if output else None
    if digest is not None and not report.status:
        values[OBJECT] = digest
    return Outcome(values, _status(report))


def _status(report: Report) -> str:
    if report.error is not None:
        return "error"
    if report.status:
        return "failed"
    return "ok" if report.fallback is None else "fallback"
