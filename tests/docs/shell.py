"""One bash for all console blocks of a page: what a block starts in the background goes on running."""

import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

_MARK: Final = "--- the command ended with"
_SECONDS: Final = 600.0
_BASH: Final = ("/bin/bash", "--noprofile", "--norc")


@dataclass
class Command:
    """A command of a console block, and the lines of output that the block shows after it."""

    text: str
    shown: list[str] = field(default_factory=list)

    @property
    def stays(self) -> bool:
        """Whether it goes on in the background."""
        return self.text.rstrip().endswith("&")


def commands(block: str) -> Iterator[Command]:
    """Give the commands of a console block: lines after ``$``, continued where one ends with a backslash."""
    command: Command | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line[2:])
        elif command is not None and command.text.endswith("\\") and not command.shown:
            command.text += f"\n{line}"
        elif command is not None:
            command.shown.append(line)
    if command is not None:
        yield command


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether ``printed`` is what a page shows: ``…`` stands for anything in a line, and alone for any lines."""
    pattern = "".join(
        "(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.rstrip().split("…"))) + "\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


class Shell:
    """Runs commands one after another in one bash."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self, command: Command) -> list[str]:
        """Run ``command`` and give the lines that it prints; one that stays is waited for until it is ready.

        Raises:
            AssertionError: it fails, or takes too long.

        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command.text}\nprintf '%s\\n' \"{_MARK} $?\"\n")
        self._process.stdin.flush()
        end, printed, status = monotonic() + _SECONDS, list[str](), ""
        while not (status and (not command.stays or _is_ready(printed))):
            line = self._next(command, printed, end)
            if line.startswith(_MARK):
                status = line.removeprefix(_MARK).strip()
            else:
                printed.append(line)
        said = "\n".join(printed)
        assert status == "0", f"`{command.text}` ended with {status}:\n{said}"
        return printed

    def _next(self, command: Command, printed: list[str], end: float) -> str:
        try:
            return self._lines.get(timeout=max(0.0, end - monotonic()))
        except queue.Empty:
            said = "\n".join(printed)
            raise AssertionError(f"`{command.text}` is not done after {_SECONDS:g} seconds:\n{said}") from None

    def close(self) -> None:
        """End the bash and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()


def _is_ready(printed: Sequence[str]) -> bool:
    return any(line.startswith("ready ") for line in printed)


@contextmanager
def opened_shell(folder: Path, environment: Mapping[str, str], start: Sequence[str] = _BASH) -> Iterator[Shell]:
    """Start a bash in ``folder``; it ends with all that it started."""
    shell = Shell(
        subprocess.Popen(
            start,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    try:
        yield shell
    finally:
        shell.close()
