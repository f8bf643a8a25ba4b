"""A compiler as a process group that is ended as a whole."""

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final

GRACE: Final = 2.0
"""Seconds for a compiler that is told to end: LLVM then removes the files that it has begun."""

_PAUSE: Final = 0.005

Stream = int | IO[bytes] | IO[str] | None
"""As in `subprocess.Popen`; None is the caller's own."""


@dataclass(frozen=True)
class Surroundings:
    """Where a compiler runs; everything is the caller's own unless said otherwise."""

    cwd: Path | str | None = None
    env: Mapping[str, str] | None = None
    stdin: Stream = None
    stdout: Stream = None
    stderr: Stream = None

    def changed(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Give the environment with ``variables`` set in it."""
        return {**(os.environ if self.env is None else self.env), **variables}


class CompilerProcess(AbstractContextManager["CompilerProcess"]):
    """A running compiler, in a session of its own: a driver that is killed alone would orphan its cc1.

    Raises:
        OSError: it cannot be started.

    """

    def __init__(self, command: Sequence[str], surroundings: Surroundings, variables: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            command,
            cwd=surroundings.cwd,
            env=surroundings.changed(variables),
            stdin=surroundings.stdin,
            stdout=surroundings.stdout,
            stderr=surroundings.stderr,
            # What the caller lets through (make's job server) reaches the compiler as if it were started directly.
            close_fds=False,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self._child.pid)

    @property
    def group(self) -> int:
        """The process group's id."""
        return self._child.pid

    def fileno(self) -> int:
        """Give the descriptor that becomes readable when the compiler has exited."""
        return self._pidfd

    def wait(self) -> int:
        """Wait for the compiler's end and give its status, 128 + n where signal n ended it."""
        self._exited(None)
        # While its leader is not reaped the group's number is nobody else's.
        self._signal(signal.SIGKILL)
        code = self._child.wait()
        return 128 - code if code < 0 else code

    def end(self) -> None:
        """End the compiler and all that it started, as soon as it has put away its temporary files."""
        self._signal(signal.SIGTERM)
        end = monotonic() + GRACE
        while _is_alive(self._child.pid) and monotonic() < end:
            sleep(_PAUSE)
        self._signal(signal.SIGKILL)

    def _exited(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def __exit__(self, *_: object) -> None:
        if self._child.returncode is None:
            self.end()
            self.wait()
        os.close(self._pidfd)


def _is_alive(group: int) -> bool:
    # A driver ends before its cc1 has put its files away. The cc1 is no child of ours, so /proc has to tell.
    return any(_group_of(process) == group for process in Path("/proc").glob("[0-9]*"))


def _group_of(process: Path) -> int | None:
    try:
        state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(group)


class Watchdog(AbstractContextManager["Watchdog"]):
    """Ends a process group and removes a folder if this process is killed, and so cannot do it itself.

    LLVM would spin for ever at the end of its replies. The watchdog is a shell that waits for the end of its stdin.
    """

    _SCRIPT: Final = 'read -r _; kill -s TERM -- "-$1"; sleep 1; kill -s KILL -- "-$1"; rm -rf -- "$2"'

    def __init__(self, group: int, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", self._SCRIPT, "policybridge-watchdog", str(group), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.__exit__(None, None, None)
