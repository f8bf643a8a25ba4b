"""One source package on its way to modules: fetch, unpack, build, convert, clean."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import IO, Final

from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.building import running
from policybridge_train.corpus.conversion import Converted, Project, convert, units_of
from policybridge_train.corpus.debian.apt import Apt
from policybridge_train.corpus.debian.attempts import Attempt, attempts
from policybridge_train.corpus.notes import BuildCommand, read_notes
from policybridge_train.corpus.wrappers import recording_environment
from policybridge_train.corpus.writing import CorpusWriter, remove

_TURN: Final = 0.2
"""Seconds between two looks at whether a build is to be given up."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_OPTIONS: Final = {"DEB_BUILD_OPTIONS": "nocheck nodoc", "DEB_BUILD_PROFILES": "nocheck nodoc"}


@dataclass(frozen=True)
class Wanted:
    """A package and the options of its build."""

    name: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A package's row of the report.

    Attributes:
        built: the `Attempt` that built it; empty if all failed.
        remark: why it failed, or failed in parts.

    """

    package: str
    modules: int = 0
    failed: int = 0
    seconds: float = 0.0
    built: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Workshop:
    """The tools and folders that all packages share.

    Attributes:
        folder: in which packages are unpacked and built.
        seconds: that one build may take.
        keep: whether build trees stay.

    """

    apt: Apt
    folder: Path
    front_end: FrontEnd
    writer: CorpusWriter
    logs: Path
    seconds: float = 1800
    keep: bool = False
    _stopped: Event = field(default_factory=Event)

    def stop(self) -> None:
        """End all builds."""
        self._stopped.set()

    def process(self, wanted: Wanted) -> Row:
        """Build a package and add its modules; what fails is told in the row."""
        start = time.monotonic()
        folder = self.folder.resolve() / wanted.name
        try:
            folder.mkdir(parents=True)
            row = self._process(wanted, folder)
        except (PolicyBridgeError, OSError, subprocess.SubprocessError) as error:
            row = Row(wanted.name, remark=str(error))
        except Exception as error:
            row = Row(wanted.name, remark=repr(error))
        finally:
            if not self.keep:
                remove(folder)
        if row.remark:
            self.writer.fail(wanted.name, row.remark)
        return Row(row.package, row.modules, row.failed, time.monotonic() - start, row.built, row.remark)

    def _process(self, wanted: Wanted, folder: Path) -> Row:
        description = self.apt.download(wanted.name, folder)
        remarks: list[str] = []
        for attempt in attempts(_unpack(description, folder / "look", patched=False), wanted.options):
            source = _unpack(description, folder / "build", patched=attempt.patched)
            with self._log(wanted.name) as log:
                commands, remark = self._build(attempt, source, log)
            if units_of(commands):
                project = Project(wanted.name, source, moves=True)
                done = convert(commands, project, self.front_end, self.writer, progress=self._check)
                return Row(wanted.name, done.done - done.failed, done.failed, 0, attempt.name, remark)
            remarks.append(f"{attempt.name}: {remark or 'it compiles no C or C++'}")
        raise InvalidError("; ".join(remarks) or "there is nothing that we can build: no CMake, configure, Makefile")

    def _build(self, attempt: Attempt, source: Path, log: IO[bytes]) -> tuple[list[BuildCommand], str]:
        """Give the commands that a build ran, and what went wrong."""
        with tempfile.TemporaryDirectory(prefix="policybridge-record-") as notes:
            environment = {**recording_environment(Path(notes), os.environ, preload=False), **_OPTIONS}
            remark = ""
            deadline = time.monotonic() + self.seconds
            for command in attempt.commands:
                log.write(f"$ {' '.join(command)}\n".encode())
                log.flush()
                remark = self._run(command, environment, source / attempt.folder, log, deadline)
                if remark:
                    break
            return read_notes(Path(notes)), remark

    def _check(self, _: Converted) -> None:
        if self._stopped.is_set():
            raise UnavailableError("the corpus was given up")

    def _run(
        self, command: Sequence[str], environment: dict[str, str], folder: Path, log: IO[bytes], deadline: float
    ) -> str:
        """Run a command to its end or to the deadline; give what went wrong."""
        with running(command, environment, folder, log) as process:
            while time.monotonic() < deadline:
                if self._stopped.is_set():
                    return "the corpus was given up"
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(_TURN)
                    return "" if status == 0 else f"{command[0]} ended with status {status}"
        return f"{command[0]} was ended: it takes longer than a build may"

    @contextmanager
    def _log(self, package: str) -> Iterator[IO[bytes]]:
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{package}.log").open("ab") as log:
            yield log


def read_wanted(lines: Sequence[str]) -> list[Wanted]:
    """Read a list of packages: one a line, with options for its build behind it; ``#`` begins a comment.

    Raises:
        InvalidError: a line names no package.

    """
    rows = [words for line in lines if (words := line.partition("#")[0].split())]
    wrong = [row[0] for row in rows if not _NAME.fullmatch(row[0])]
    if wrong:
        raise InvalidError(f"{wrong[0]!r} is no name of a source package (deb-src-control(5), Source)")
    return list({row[0]: Wanted(row[0], tuple(row[1:])) for row in rows}.values())


def _unpack(description: Path, folder: Path, *, patched: bool) -> Path:
    remove(folder)
    patches = [] if patched else ["--skip-patches"]
    ended = subprocess.run(
        # apt has checked the files against the archive's signed lists.
        ["dpkg-source", "--no-check", *patches, "-x", str(description), str(folder)],  # noqa: S607 - the machine's own
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        raise InvalidError(f"dpkg-source: {ended.stderr.strip()[-300:]}")
    return folder
