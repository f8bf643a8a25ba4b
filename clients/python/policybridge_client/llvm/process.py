"""A compiler as a process group, which ends as a whole, and the private pair of named pipes by which it asks."""

import math
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, prlimit
from time import monotonic, sleep
from typing import Final

from policybridge_client.llvm.signals import AWAKE_WITHIN, Interrupts
from policybridge_client.llvm.surroundings import CompilerLimits, Surroundings
from policybridge_core.errors import UnavailableError

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL, in which LLVM removes its unfinished files."""

KEPT_OUTPUT: Final = 2000
"""Bytes of a compiler's output that a result or a message has."""

_PAUSE: Final = 0.005

_MORE_SECONDS: Final = 10
"""Processor seconds beyond the wall seconds: the kernel ends a compiler whose host was killed."""

_PIECE: Final = 1 << 16
"""Capacity of a pipe, in bytes."""


class CompilerProcess(AbstractContextManager["CompilerProcess"]):
    """A running compiler in a process session of its own, so that a driver and its cc1 can be ended together.

    Attributes:
        status: the exit status, or 128 + n if signal n ended it; 0 until `wait` has returned.
        late: whether it was ended at its time limit.
        cpu_seconds: the processor time of the compiler and its children; 0 until `wait` has returned.

    Raises:
        OSError: the compiler cannot be started.
        Exception: that of ``surroundings.counted``; the compiler is ended.

    """

    def __init__(self, command: Sequence[str], surroundings: Surroundings, variables: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            command,
            cwd=surroundings.cwd,
            env={**(os.environ if surroundings.env is None else surroundings.env), **variables},
            stdin=surroundings.stdin,
            stdout=surroundings.stdout,
            stderr=surroundings.stderr,
            # Inherited descriptors, such as those of make's job server, reach the compiler as without PolicyBridge.
            close_fds=False,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self._child.pid)
        self.status = 0
        self.late = False
        self.cpu_seconds = 0.0
        limits = surroundings.limits
        self._deadline = math.inf if limits is None else monotonic() + limits.seconds
        self._counting = ExitStack()
        try:
            if limits is not None:
                self._limit(limits)
            self._counting.enter_context(surroundings.counted(self.kill))
        except BaseException:
            self.__exit__()
            raise

    @property
    def group(self) -> int:
        """The process group's id."""
        return self._child.pid

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the compiler has exited."""
        return self._pidfd

    @property
    def seconds_left(self) -> float:
        """The seconds until the time limit."""
        return self._deadline - monotonic()

    def wait(self) -> int:
        """Wait for the compiler, and end it at its time limit; return `status`."""
        self._await()
        self._counting.close()
        # No other process group can get this id before its leader is reaped.
        self._signal(signal.SIGKILL)
        if self._child.returncode is None:
            # If SIGCHLD is ignored, the kernel keeps no status, and Popen takes 0.
            with suppress(ChildProcessError):
                _, status, used = os.wait4(self._child.pid, 0)
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_seconds = used.ru_utime + used.ru_stime
        code = self._child.wait()
        self.status = 128 - code if code < 0 else code
        return self.status

    def end(self) -> None:
        """End the compiler and its children. They get a few seconds to remove their temporary files."""
        self.late = self.seconds_left <= 0
        self._signal(signal.SIGTERM)
        end = monotonic() + GRACE
        while _is_alive(self._child.pid) and monotonic() < end:
            sleep(_PAUSE)
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End the compiler and its children at once. Their temporary files stay."""
        self._signal(signal.SIGKILL)

    def _await(self) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        while not poll.poll(max(min(self.seconds_left, AWAKE_WITHIN), 0) * 1000):
            if self.seconds_left <= 0:
                self.end()

    def _limit(self, limits: CompilerLimits) -> None:
        seconds = int(limits.seconds) + _MORE_SECONDS
        wanted = {RLIMIT_AS: limits.memory, RLIMIT_CPU: seconds, RLIMIT_CORE: 0}
        with suppress(ProcessLookupError):
            for resource, value in wanted.items():
                _, most = prlimit(self._child.pid, resource)
                lower = value if most == RLIM_INFINITY else min(value, most)
                prlimit(self._child.pid, resource, (lower, lower))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def __exit__(self, *_: object) -> None:
        if self._child.returncode is None:
            self.end()
            self.wait()
        os.close(self._pidfd)


def run_plain(command: Sequence[str], surroundings: Surroundings, interrupts: Interrupts) -> CompilerProcess:
    """Run a compiler without a policy; return it after its end.

    Raises:
        OSError: the compiler cannot be started.

    """
    with interrupts.guarded() as stack:
        with interrupts.held():
            process = stack.enter_context(CompilerProcess(command, surroundings, {}))
        process.wait()
        return process


def _is_alive(group: int) -> bool:
    # A driver ends before its cc1 has removed its files. The cc1 is not our child, so find it in /proc.
    return any(_group_of(process) == group for process in Path("/proc").glob("[0-9]*"))


def _group_of(process: Path) -> int | None:
    try:
        state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(group)


def base_in(folder: Path) -> str:
    """Give the base of the channel whose folder this is."""
    return str(folder / "llvm")


class Channel(AbstractContextManager["Channel"]):
    """``base.in`` and ``base.out`` in a folder of their own, which is removed when the channel is closed.

    The host opens both pipes for reading and writing before the compiler starts. So no open can block, even if the
    compiler never opens its ends, and the compiler never reads an end of file, after which LLVM would loop forever.

    Raises:
        UnavailableError: the folder or the pipes cannot be made.

    """

    def __init__(self) -> None:
        self._pipes: list[int] = []
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="policybridge-"))
        except OSError as error:
            raise UnavailableError(f"no folder for temporary files can be made: {error}") from error
        self.base = base_in(self.folder)
        try:
            self._replies = self._pipe(".in")
            self._observations = self._pipe(".out")
        except OSError as error:
            self.__exit__()
            raise UnavailableError(f"no named pipes can be made: {error}") from error

    def _pipe(self, end: str) -> int:
        os.mkfifo(self.base + end, 0o600)
        self._pipes.append(os.open(self.base + end, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        return self._pipes[-1]

    def fileno(self) -> int:
        """Return the descriptor that is readable after LLVM has written."""
        return self._observations

    def read(self) -> bytes:
        """Read LLVM's output; call it when the descriptor is readable."""
        return os.read(self._observations, _PIECE)

    def reply(self, advice: bytes) -> None:
        """Send the advice's bytes, the whole reply to one observation."""
        os.write(self._replies, advice)

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)


class Watchdog(AbstractContextManager["Watchdog"]):
    """Ends a process group and removes a folder if this process is killed.

    Without it, LLVM would loop forever at the end of its replies. The watchdog is a shell that waits for the end of
    its stdin.
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
