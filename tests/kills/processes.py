"""The processes of the kills: those that ask as long as the driver runs, and those that are killed."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from policybridge_core.errors import PolicyFailedError
from tests.kills.messages import Asking, Over, Publishing, Rest, Said, Serving, Wanted


def said(lines: Iterable[bytes]) -> Iterator[Said]:
    """Give a process's messages until `Over`."""
    for line in lines:
        # A process that was killed may leave half a line.
        with contextlib.suppress(msgspec.DecodeError):
            message = msgspec.json.decode(line, type=Said)
            if isinstance(message, Over):
                return
            yield message


class Talker:
    """A process of a module of this package that takes and gives lines; it ends with its input.

    Args:
        module: its name.
        log: its standard error, and that of its children, goes there.
        more: variables of its environment.

    """

    def __init__(self, module: str, log: Path, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self.log = log
        command = [sys.executable, "-m", f"tests.kills.{module}"]
        pipe = subprocess.PIPE
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, env={**os.environ, **more}
            )

    def begin(self, what: Asking | Rest | Wanted) -> None:
        """Tell it what to do."""
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")
            self._process.stdin.flush()

    def lines(self) -> Iterator[bytes]:
        """Give the lines of its output."""
        output = self._process.stdout
        # Not of the pipe itself: that would be closed together with this iterator.
        return iter(output.readline if output else bytes, b"")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Killed:
    """A process that is to be killed.

    Args:
        nursery: forks it.
        task: to run.
        fifo: its output goes there; made and removed here.

    Attributes:
        pid: its number.

    Raises:
        PolicyFailedError: the nursery has ended.

    """

    def __init__(self, nursery: Talker, task: Serving | Publishing, fifo: Path) -> None:
        self._log = nursery.log
        os.mkfifo(fifo)
        nursery.begin(Wanted(task, str(fifo)))
        pid = next((int(line) for line in nursery.lines() if line.strip().isdigit()), None)
        if pid is None:
            raise PolicyFailedError(f"no process could be forked\n{self._tail()}")
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self.output = fifo.open("rb")
        fifo.unlink()

    def wait_ready(self) -> list[str]:
        """Give the addresses of a server that listens.

        Raises:
            PolicyFailedError: it ended; the message has the end of its log.

        """
        for line in self.output:
            if line.startswith(b"ready"):
                return line.decode().split()[1:]
        raise PolicyFailedError(f"a server ended before it was ready\n{self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def end(self, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send it a signal, and wait for its end; say whether it was still running."""
        running = not self._over(0)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)
        self._over(None)
        return running

    def _over(self, timeout: float | None) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout)[0])

    def close(self, *_: Any) -> None:
        """Kill it if it runs, and close its descriptors."""
        self.end()
        os.close(self._descriptor)
        self.output.close()
