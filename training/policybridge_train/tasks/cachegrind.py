"""Counting the cache misses of a program's function, by valgrind's tool cachegrind: a model of a cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.tasks.callgrind import find_valgrind

CACHE: Final = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
"""Bytes, ways and bytes of a line. Said here, because cachegrind else takes those of the machine that it runs on."""

_OUTPUT: Final = "cachegrind.out"
_READ, _WRITTEN, _INSTRUCTIONS = "D1mr", "D1mw", "Ir"


@dataclass(frozen=True)
class Misses:
    """Of one function, without those that it calls.

    Attributes:
        data: misses of the first level's data cache, in reads and writes.
        instructions: that it takes.

    """

    data: int
    instructions: int


def count_misses(program: Path, function: str, folder: Path, limits: Limits, running: Running) -> Misses:
    """Run a program in a folder, and count the misses of one of its functions.

    Raises:
        NotFoundError: there is no valgrind.
        PreconditionError: the program fails, takes too long, or was ended.
        InvalidError: the function was never called.

    """
    options = ["--tool=cachegrind", "--cache-sim=yes", *CACHE, f"--cachegrind-out-file={_OUTPUT}", "--quiet"]
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    done = compile_by([find_valgrind(), *options, str(program)], limits, environment, folder, running=running)
    if not done.ok:
        raise PreconditionError(f"{program.name} under valgrind: {done.status.value}: {done.message}")
    return read_misses((folder / _OUTPUT).read_text(errors="surrogateescape").splitlines(), function)


def read_misses(lines: Iterable[str], function: str) -> Misses:
    """Read cachegrind's output (https://valgrind.org/docs/manual/cg-manual.html#cg-manual.impl-details.file-format).

    Raises:
        InvalidError: there is no such function, or the output is none of cachegrind with a cache.

    """
    events: list[str] = []
    totals: dict[str, int] = {}
    within = False
    for line in lines:
        if line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("fn="):
            within = line == f"fn={function}"
        elif within and line[:1].isdigit():
            for event, count in zip(events, line.split()[1:], strict=False):
                totals[event] = totals.get(event, 0) + int(count)
    if not totals:
        raise InvalidError(f"cachegrind's output has no counts of a function {function}")
    if not {_READ, _WRITTEN, _INSTRUCTIONS} <= totals.keys():
        raise InvalidError(f"cachegrind's output counts {' '.join(events)}, and not {_READ}, {_WRITTEN}")
    return Misses(totals[_READ] + totals[_WRITTEN], totals[_INSTRUCTIONS])
