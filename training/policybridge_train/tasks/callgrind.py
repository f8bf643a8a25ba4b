"""Counting the instructions that a program takes, exactly, by valgrind's tool callgrind."""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Running, compile_by

_OUTPUT: Final = "callgrind.out"
_NUMBERS: Final = re.compile(rb"[-+*\d]\S* (\d+)$")
_RECURSION: Final = re.compile(rb"'\d+$")


@dataclass(frozen=True)
class Counted:
    """Instructions of one run, within ``main``.

    Attributes:
        total: of the whole run.
        own: by function of the program, those of the function itself.
        inclusive: those of all that it calls, too. A call of a function to itself is counted once.

    """

    total: int
    own: Mapping[str, int]
    inclusive: Mapping[str, int]


def find_valgrind() -> str:
    """Find valgrind.

    Raises:
        NotFoundError: it is not on PATH.

    """
    path = shutil.which("valgrind")
    if path is None:
        raise NotFoundError("there is no valgrind on PATH; apt-get install valgrind")
    return path


def count(program: Path, arguments: Sequence[str], folder: Path, limits: Limits, running: Running) -> Counted:
    """Run a program in a folder and count.

    Address space, environment and the words of the command are the same in each run, so that the count is.

    Raises:
        NotFoundError: there is no valgrind.
        PreconditionError: the program fails, takes too long, or was ended.

    """
    output = folder / _OUTPUT
    options = ["--tool=callgrind", f"--callgrind-out-file={_OUTPUT}", "--toggle-collect=main"]
    # Names as the linker has them, and each in full: the file is read line by line.
    options += ["--demangle=no", "--compress-strings=no", "--compress-pos=no", "--quiet"]
    command = [find_valgrind(), *options, str(program), *arguments]
    done = compile_by(command, limits, {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, folder, running=running)
    if not done.ok:
        raise PreconditionError(f"{program.name} under valgrind: {done.status.value}: {done.message}")
    return read_counts(output.read_bytes().splitlines(), str(program))


def read_counts(lines: Iterable[bytes], program: str) -> Counted:
    """Read callgrind's output (https://valgrind.org/docs/manual/cl-format.html), of which it uses one event.

    Args:
        lines: of the file.
        program: the path of the program; functions of other objects are not told.

    Raises:
        InvalidError: there is no total.

    """
    reading = _Reading(program.encode(errors="surrogateescape"))
    for line in lines:
        reading.line(line)
    if reading.total is None:
        raise InvalidError("callgrind's output has no line 'summary:': the program ended before its main function did")
    return Counted(reading.total, _named(reading.own), _named(reading.inclusive))


def _named(counts: Mapping[bytes, int]) -> Mapping[str, int]:
    return {name.decode(errors="surrogateescape"): value for name, value in counts.items()}


class _Reading:
    """The lines so far: cost lines belong to the last ``fn=``; the line after ``calls=`` is a call's inclusive cost."""

    def __init__(self, program: bytes) -> None:
        self.total: int | None = None
        self.own: Counter[bytes] = Counter()
        self.inclusive: Counter[bytes] = Counter()
        self._program = program
        self._ours = False
        self._function = self._callee = b""
        self._called = False

    def line(self, line: bytes) -> None:
        key, equals, value = line.partition(b"=")
        if equals and key in (b"ob", b"fn", b"cfn", b"calls"):
            self._header(key, value)
        elif found := _NUMBERS.match(line):
            self._cost(int(found[1]))
        elif line.startswith(b"summary: "):
            self.total = int(line.split()[1])

    def _header(self, key: bytes, value: bytes) -> None:
        if key == b"ob":
            self._ours = value == self._program
        elif key == b"fn":
            self._function = _RECURSION.sub(b"", value)
        elif key == b"cfn":
            self._callee = _RECURSION.sub(b"", value)
        else:
            self._called = True

    def _cost(self, count: int) -> None:
        called, self._called = self._called, False
        if not self._ours:
            return
        if not called:
            self.own[self._function] += count
        if not called or self._callee != self._function:
            self.inclusive[self._function] += count
