"""The surroundings of a compiler: folder, environment, streams and limits."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Stream = int | IO[bytes] | IO[str] | None
"""As in `subprocess.Popen`; ``None`` is the stream of this process."""

Counted = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Makes a context manager that is open while a compiler runs. Its argument ends the compiler, from any thread."""


@dataclass(frozen=True)
class CompilerLimits:
    """Limits of one compilation: wall seconds, and bytes of address space."""

    seconds: float = 600.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Surroundings:
    """A compiler's folder, environment, streams and limits; by default those of this process.

    Attributes:
        cwd: its working folder.
        env: all of its environment variables.
        stdin: its standard input.
        stdout: its standard output.
        stderr: its standard error.
        limits: its time and memory.
        counted: see `Counted`.

    """

    cwd: Path | str | None = None
    env: Mapping[str, str] | None = None
    stdin: Stream = None
    stdout: Stream = None
    stderr: Stream = None
    limits: CompilerLimits | None = None
    counted: Counted = nullcontext
