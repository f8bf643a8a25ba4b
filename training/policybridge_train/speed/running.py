"""Runs of a program: the same each time, under callgrind or timed.

A program's stack has its command line and its environment, and so its addresses depend on their lengths. Here all of
these are the same in every run and every folder: the program is a file of a fixed name in a folder whose path is always
as long, and the environment has nothing of the user's.
"""

import hashlib
import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import MOST_OUTPUT, Ended, Running, Status, compile_by
from policybridge_train.speed.folders import take_folder
from policybridge_train.tasks.cachegrind import CACHE
from policybridge_train.tasks.callgrind import COSTS, QUIETLY, Counted, find_valgrind, read_counts

_SETTING: Final = re.compile(r"[A-Za-z_]\w*=")
_OPERATORS: Final = "<>|&;"
"""Of a shell; they end a word also without a space before them."""

_WARNING: Final = re.compile(r"(signal \d+: )?--\d+-- warning")
"""A line of valgrind's about this processor's own caches, which are not those of the model."""

_STACK: Final = 8 << 20
"""Bytes. Else it depends on the user's limit."""

_FIXED: Final[Mapping[str, str]] = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "TZ": "UTC", "LD_BIND_NOW": "1"}
"""The environment. Functions of libraries are bound before ``main``: binding is counted else, and is no part of it."""


@dataclass(frozen=True)
class RunCommand:
    """The user's command that runs a program.

    Attributes:
        program: the file, absolute and without links.
        arguments: of the program.
        folder: where it runs.
        variables: of its environment, beside those that are the same for all.
        stdin: the file of its standard input, if it has one.

    """

    program: Path
    arguments: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None

    @classmethod
    def parse(cls, text: str, folder: Path) -> "RunCommand":
        """Read a command: ``NAME=VALUE`` before the program, arguments, and ``< FILE``, quoted as for a shell.

        Raises:
            InvalidError: it has no program, or something else of a shell's.
            NotFoundError: there is no such program, or no such input.

        """
        variables, words, given = _read(text)
        stdin = None if given is None else folder / given
        if stdin is not None and not stdin.is_file():
            raise NotFoundError(f"--run: there is no file {stdin} for the program's standard input")
        return cls(_program(words[0], folder), tuple(words[1:]), folder, variables, stdin)

    @property
    def environment(self) -> Mapping[str, str]:
        """The whole environment of a run."""
        return {**_FIXED, **self.variables}


def check_run(text: str) -> None:
    """Refuse a command that `RunCommand.parse` cannot read, before a build makes its program.

    Raises:
        InvalidError: it has no program, or something else of a shell's.

    """
    _read(text)


def _read(text: str) -> tuple[dict[str, str], list[str], str | None]:
    """Give the variables, the program with its arguments, and the file of the standard input."""
    words = _split(text)
    variables: dict[str, str] = {}
    while words and _SETTING.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    stdin = None
    if len(words) > 1 and words[-2] == "<":
        stdin = words.pop()
        words.pop()
    if not words:
        raise InvalidError("--run names no program: give --run './bench input'")
    if odd := next((word for word in words if word and set(word) <= set(_OPERATORS)), None):
        raise InvalidError(
            f"--run has {odd!r}, and there is no shell: give a program, its arguments, and at the end '< FILE'"
        )
    return variables, words, stdin


def _split(text: str) -> list[str]:
    words = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    words.whitespace_split, words.commenters = True, ""
    try:
        return list(words)
    except ValueError as error:
        raise InvalidError(f"--run cannot be read: {error}") from error


def _program(word: str, folder: Path) -> Path:
    path = Path(os.path.realpath(folder / word))
    if not path.is_file():
        raise NotFoundError(
            f"--run: the build left no program {word!r} in {folder}: give its path as seen from there, such as ./bench"
        )
    return path


@dataclass(frozen=True)
class Ran:
    """A run that ended well.

    Attributes:
        output: SHA-256 of its standard output, in hex.
        seconds: of processor time, the system's included: the system tells the two apart by a coarse clock.

    """

    output: str
    seconds: float


class Runner(AbstractContextManager["Runner"]):
    """Runs programs by the user's command, in place of the command's own. For one thread.

    Args:
        command: the user's.
        limits: of one run.
        running: where each run is counted while it runs.
        cost: the name of the cost, in `COSTS`.

    Raises:
        NotFoundError: there is no valgrind.
        OSError: there is no folder for the program.

    """

    def __init__(self, command: RunCommand, limits: Limits, running: Running, cost: str = "cycles") -> None:
        self._valgrind = _without_wrapper(find_valgrind())
        self._command = command
        self._limits = limits
        self._running = running
        self._weights = COSTS[cost]
        self.folder, self._lock = take_folder()
        """For the programs, each of which is in a folder of its own with a name of one letter."""
        self.runs = 0

    def place(self, letter: str) -> Path:
        """Give the path of a program that is to be run; its folder is there then."""
        folder = self.folder / letter
        folder.mkdir(exist_ok=True)
        return folder / self._command.program.name

    def count(self, program: Path) -> tuple[Counted, Ran]:
        """Run a program of `place` under callgrind.

        Raises:
            PreconditionError: it fails, or takes too long.
            InvalidError: it ended before ``main`` did.

        """
        profile = self.folder / "callgrind.out"
        options = [*QUIETLY, f"--callgrind-out-file={profile}", "--toggle-collect=main"]
        options += ["--demangle=no", "--compress-strings=no", "--compress-pos=no", f"--main-stacksize={_STACK}"]
        # By address: callgrind counts no jump within a line, and a program without lines of source has line 0 alone.
        options += ["--collect-jumps=yes", "--dump-instr=yes", "--dump-line=no"]
        options += ["--cache-sim=yes", "--branch-sim=yes", *CACHE]
        ran = self._run([self._valgrind, *options, self._named(program)], "under valgrind ")
        with profile.open("rb") as lines:
            return read_counts(lines, os.path.realpath(program), self._weights), ran

    def time(self, program: Path) -> Ran:
        """Run a program of `place` as it is; see `count`."""
        return self._run([self._named(program)])

    def _named(self, program: Path) -> str:
        """Link a program; give the link's path, the same for all programs: some print their path."""
        link = self.folder / "p"
        link.unlink(missing_ok=True)
        link.symlink_to(program.parent.name)
        return str(link / program.name)

    def _run(self, words: Sequence[str], how: str = "") -> Ran:
        self.runs += 1
        output = self.folder / "stdout"
        command, given = [*words, *self._command.arguments], self._command
        done = compile_by(
            command,
            self._limits,
            given.environment,
            given.folder,
            running=self._running,
            stdin=given.stdin,
            stdout=output,
        )
        if not done.ok:
            raise PreconditionError(_failure(done, given.program.name, how))
        with output.open("rb") as file:
            return Ran(hashlib.file_digest(file, "sha256").hexdigest(), done.seconds)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _without_wrapper(valgrind: str) -> str:
    """Give Debian's own program behind its shell script: a shell adds the folder to the environment (PWD)."""
    program = f"{valgrind}.bin"
    return program if os.access(program, os.X_OK) else valgrind


def _failure(done: Ended, program: str, how: str) -> str:
    said = " ".join(line for line in done.failure.splitlines() if not _WARNING.match(line)) or "it says nothing"
    words = f"--run: {program} {how}does not end well: {said}"
    if done.signal == signal.SIGXFSZ:
        return f"{words}; it writes more than {MOST_OUTPUT >> 20:,} MiB"
    if done.status is Status.TIMEOUT:
        return f"{words}; valgrind takes some 50 times as long: give a smaller input, or more time (--seconds)"
    return (
        f"{words}; it has to exit with 0 from another place, without the user's environment (set variables by --run "
        "'NAME=VALUE …')"
    )
