"""Exact costs of a program by valgrind's tool callgrind: instructions, or estimated cycles."""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Running, compile_by

QUIETLY: Final = ("--tool=callgrind", "--quiet", "--vgdb=no")
"""Options without which a valgrind that is ended leaves three pipes for a debugger in /tmp."""

_OUTPUT: Final = "callgrind.out"
_NUMBERS: Final = re.compile(rb"[-+*\d]\S*((?: \d+)+) *$")
_COUNT: Final = re.compile(rb"\d+")
_RECURSION: Final = re.compile(rb"'\d+$")

TAKEN: Final = "Taken"
"""The event of a taken branch, which callgrind's option ``--collect-jumps=yes`` tells of; beside callgrind's own."""

Weights: TypeAlias = Mapping[str, int]
"""By event of callgrind's: its share of a cost."""

COSTS: Final[Mapping[str, Weights]] = {
    "instructions": {"Ir": 1},
    # Fitted to the times of 31 programs, on inputs that the table of cycles is not made of. The logarithms of estimate
    # and time have a correlation of 0.62 in 176 versions that the search made, and of 0.81 in 568 comparisons of LLVM's
    # levels; 0.51 and 0.80 by 10 for each first-level miss, 2 for a taken branch and nothing for writes.
    "cycles": {
        "Ir": 1,
        "Dw": 1,
        "I1mr": 30,
        **dict.fromkeys(("D1mr", "D1mw"), 40),
        **dict.fromkeys(("ILmr", "DLmr", "DLmw"), 100),
        **dict.fromkeys(("Bcm", "Bim"), 10),
        TAKEN: 1,
    },
}
"""Costs by name. An access that misses the last level missed the first one, too, and counts as both."""


@dataclass(frozen=True)
class Counted:
    """The cost of one run, within ``main``; instructions, if no weights say otherwise.

    Attributes:
        total: of the whole run.
        own: by function of the program, that of the function itself.
        inclusive: that of all that it calls, too, but for taken branches there. A call of a function to itself is
            counted once.
        outside: by function of the program, that of its calls into other objects, such as the C library.
        calls: by caller and callee, both of the program: how often one calls the other.
        events: of the whole run, how often each of callgrind's events took place, such as ``Ir`` and ``Bcm``; and
            `TAKEN`, if jumps were collected.

    """

    total: int
    own: Mapping[str, int]
    inclusive: Mapping[str, int]
    outside: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)


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
    options = [*QUIETLY, f"--callgrind-out-file={_OUTPUT}", "--toggle-collect=main"]
    # Names as the linker has them, and each in full: the file is read line by line.
    options += ["--demangle=no", "--compress-strings=no", "--compress-pos=no"]
    command = [find_valgrind(), *options, str(program), *arguments]
    done = compile_by(command, limits, {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, folder, running=running)
    if not done.ok:
        raise PreconditionError(f"{program.name} under valgrind: {done.status.value}: {done.message}")
    with output.open("rb") as lines:
        return read_counts(lines, str(program))


def read_counts(lines: Iterable[bytes], program: str, weights: Weights = COSTS["instructions"]) -> Counted:
    """Read callgrind's output (https://valgrind.org/docs/manual/cl-format.html).

    Args:
        lines: of the file, with or without their ends.
        program: the path of the program; functions of other objects are not told.
        weights: of the events; others, and events that were not counted, cost nothing.

    Raises:
        InvalidError: there is no total.

    """
    reading = _Reading(program.encode(errors="surrogateescape"), weights)
    for line in lines:
        reading.line(line.rstrip(b"\r\n"))
    if reading.total is None:
        raise InvalidError("callgrind's output has no line 'summary:': the program ended before its main function did")
    own, inclusive, outside = map(_named, (reading.own, reading.inclusive, reading.outside))
    calls = {(_name(caller), _name(callee)): often for (caller, callee), often in reading.calls.items()}
    return Counted(reading.total, own, inclusive, outside, calls, reading.events)


def _named(counts: Mapping[bytes, int]) -> Mapping[str, int]:
    return {_name(name): value for name, value in counts.items()}


def _name(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


class _Reading:
    """The lines so far: cost lines belong to the last ``fn=``; the line after ``calls=`` is a call's inclusive cost."""

    def __init__(self, program: bytes, weights: Weights) -> None:
        self._summary: list[bytes] | None = None
        self._taken = 0
        self.own: Counter[bytes] = Counter()
        self.inclusive: Counter[bytes] = Counter()
        self.outside: Counter[bytes] = Counter()
        self.calls: Counter[tuple[bytes, bytes]] = Counter()
        self._program = program
        self._weights = weights
        self._names = ["Ir"]
        self._events = [weights.get("Ir", 0)]
        self._ours = False
        self._function = self._callee = b""
        self._callee_object: bytes | None = None
        self._called = 0

    @property
    def total(self) -> int | None:
        """The cost of the whole run; ``None``: not told so far."""
        if self._summary is None:
            return None
        return self._weighed(self._summary) + self._weights.get(TAKEN, 0) * self._taken

    @property
    def events(self) -> Mapping[str, int]:
        """How often each took place in the whole run."""
        told = dict(zip(self._names, map(int, self._summary or ()), strict=False))
        return told | ({TAKEN: self._taken} if self._taken else {})

    def line(self, line: bytes) -> None:
        key, equals, value = line.partition(b"=")
        if equals and key in (b"ob", b"fn", b"cob", b"cfn", b"calls"):
            self._header(key, value)
        elif equals and key in (b"jump", b"jcnd"):
            self._jump(value)
        elif found := _NUMBERS.match(line):
            self._cost(self._weighed(found[1].split()))
        elif line.startswith(b"summary: "):
            self._summary = line.split()[1:]
        elif line.startswith(b"events: "):
            self._names = [event.decode(errors="replace") for event in line.split()[1:]]
            self._events = [self._weights.get(event, 0) for event in self._names]

    def _weighed(self, counts: Sequence[bytes]) -> int:
        # Zeros at the end of a line are left out.
        return sum(weight * int(count) for weight, count in zip(self._events, counts, strict=False))

    def _header(self, key: bytes, value: bytes) -> None:
        if key == b"ob":
            self._ours = value == self._program
        elif key == b"fn":
            self._function = _RECURSION.sub(b"", value)
        elif key == b"cob":
            self._callee_object = value
        elif key == b"cfn":
            self._callee = _RECURSION.sub(b"", value)
        else:
            often = value.split()[:1]
            self._called = int(often[0]) if often and often[0].isdigit() else 1

    def _jump(self, value: bytes) -> None:
        """Count a branch's ``TAKEN/EXECUTED TARGET``, of a jump ``TAKEN TARGET``; its next line is its place."""
        found = _COUNT.match(value)
        often = int(found[0]) if found else 0
        self._taken += often
        self._spend(self._weights.get(TAKEN, 0) * often)

    def _spend(self, count: int) -> None:
        if self._ours:
            self.own[self._function] += count
            self.inclusive[self._function] += count

    def _cost(self, count: int) -> None:
        called, self._called = self._called, 0
        if not called:
            self._spend(count)
            return
        # Without a line cob=, the callee is of the caller's object.
        outside, self._callee_object = self._callee_object not in (None, self._program), None
        if not self._ours:
            return
        if self._callee != self._function or outside:
            self.inclusive[self._function] += count
        if outside:
            self.outside[self._function] += count
        else:
            self.calls[self._function, self._callee] += called
