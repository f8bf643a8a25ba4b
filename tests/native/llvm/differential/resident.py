"""A compiler that stays: it starts once, and forks for each compilation. It links and runs programs, too."""

import os
import signal
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_SOURCE: Final = Path(__file__).with_name("resident.c")
_STATUS: Final = struct.Struct("=i")
_LENGTH: Final = struct.Struct("=I")


@dataclass(frozen=True)
class Done:
    """A command that has ended.

    Attributes:
        status: its exit status; the negative number of the signal that ended it.
        output: of both streams.

    """

    status: int
    output: str

    @property
    def is_too_long(self) -> bool:
        """Whether its time was over."""
        return self.status in (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL)


class Resident:
    """A compiler's process. Its limits count processor time, which other processes of the machine do not change."""

    def __init__(self, compiler: str, folder: Path) -> None:
        library = folder / "resident.so"
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
        self._name = compiler
        self._folder = folder
        self._process = subprocess.Popen(
            [compiler],
            env={**os.environ, "LD_PRELOAD": str(library), "LD_BIND_NOW": "1", "LLVM_DISABLE_SYMBOLIZATION": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def compile(self, words: Sequence[str], seconds: int) -> Done:
        """Run the compiler with these words."""
        return self.run([self._name, *words], seconds)

    def run(self, command: Sequence[str], seconds: int) -> Done:
        """Run a command in the folder, for some seconds of processor time at most."""
        output = self._folder / "output"
        request = b"".join(
            os.fsencode(word) + b"\0" for word in (str(seconds), str(output), str(self._folder), *command)
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("the compiler has no streams")
        self._process.stdin.write(_LENGTH.pack(len(request)) + request)
        self._process.stdin.flush()
        answer = self._process.stdout.read(_STATUS.size)
        if len(answer) != _STATUS.size:
            raise AssertionError(f"{self._name} does not stay: it ended with {self._process.wait()}")
        status = os.waitstatus_to_exitcode(_STATUS.unpack(answer)[0])
        return Done(status, output.read_text("utf-8", "replace"))
