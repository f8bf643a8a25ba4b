"""A process under limits: a compiler, a linker, or a program that is measured."""

import os
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Final, Self

import msgspec

from policybridge_client.llvm.process import KEPT_OUTPUT
from policybridge_client.llvm.surroundings import CompilerLimits
from policybridge_core.errors import PreconditionError

MOST_OUTPUT: Final = 1 << 30
"""Bytes of a file that a process may write whose output goes into one: one that never ends would fill the disk."""


class Status(Enum):
    """How a compile ended; ``SKIPPED``: it was not begun."""

    OK = "ok"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has ended.

    Attributes:
        status: how it ended.
        seconds: its processor time.
        message: why it failed; if it is ``OK``, a remark, mostly empty.
        signal: the signal that ended it; 0 for none.

    """

    status: Status = Status.OK
    seconds: float = 0.0
    message: str = ""
    signal: int = 0

    @classmethod
    def of(cls, code: int, seconds: float, words: str, late: float | None = None) -> Self:
        """Give the result of a compiler process.

        Args:
            code: the exit status; −n, or 128 + n of a shell, if signal n ended the process.
            seconds: of processor time.
            words: the compiler's output.
            late: the limit of wall seconds that the process reached; ``None`` if it ended by itself.

        """
        if late is not None:
            return cls(status=Status.TIMEOUT, seconds=seconds, message=f"it was ended after {late:g} seconds")
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number:
            message = f"signal {number}: {words}".rstrip(": ")
            return cls(status=Status.CRASHED, seconds=seconds, message=message, signal=number)
        if code:
            return cls(status=Status.FAILED, seconds=seconds, message=words or f"status {code}, and no message")
        return cls(seconds=seconds)

    @property
    def ok(self) -> bool:
        """Whether there is an object."""
        return self.status is Status.OK

    @property
    def failure(self) -> str:
        """Why there is no object; empty if there is one."""
        if self.ok:
            return ""
        return self.message if self.status is Status.FAILED else f"{self.status.value}: {self.message}"


class Running:
    """The compilers that run now, so that another thread can end them all."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ends: dict[object, Callable[[], None]] = {}
        self._over = False

    @property
    def over(self) -> bool:
        """Whether all were ended."""
        return self._over

    @contextmanager
    def counted(self, end: Callable[[], None]) -> Iterator[None]:
        """Count a compiler as running for as long as the block lasts.

        Args:
            end: ends the compiler. It is called at most once, from any thread, and never after the block.

        Raises:
            PreconditionError: all were ended before; the compiler is ended, too.

        """
        key = object()
        with self._lock:
            if self._over:
                end()
                raise PreconditionError("the compilations were stopped")
            self._ends[key] = end
        try:
            yield
        finally:
            with self._lock:
                self._ends.pop(key, None)

    def end(self) -> None:
        """End all, and each that starts later."""
        with self._lock:
            self._over = True
            while self._ends:
                self._ends.popitem()[1]()

    def end_also(self, end: Callable[[], None]) -> None:
        """Call ``end`` when all are ended: it ends others that are not counted here.

        Raises:
            PreconditionError: all were ended before; ``end`` has been called.

        """
        with self._lock:
            if self._over:
                end()
                raise PreconditionError("the compilations were stopped")
            self._ends[object()] = end


def compile_by(  # noqa: PLR0913 - each is a choice of the caller's
    command: Sequence[str],
    limits: CompilerLimits,
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    *,
    running: Running | None = None,
    last: bool = False,
    stdin: Path | None = None,
    stdout: Path | None = None,
) -> Ended:
    """Run a compiler to its end, or to that of its limits; its whole process group is ended then.

    Args:
        command: the compiler and its arguments.
        limits: of wall time and memory.
        environment: its variables; those of this process by default.
        cwd: its folder; that of this process by default.
        running: where it is counted while it runs, so that another thread can end it.
        last: whether the message is the end of the output, and not its beginning.
        stdin: the file of its standard input; by default that is empty.
        stdout: the file for its standard output, which is no part of the message then; see `MOST_OUTPUT`.

    Raises:
        OSError: it cannot be started, or one of the files cannot be opened.
        PreconditionError: all compilers of ``running`` were ended before.

    """
    with ExitStack() as held:
        said = held.enter_context(TemporaryFile())
        process = subprocess.Popen(
            command,
            stdin=held.enter_context(stdin.open("rb")) if stdin else subprocess.DEVNULL,
            stdout=held.enter_context(stdout.open("wb")) if stdout else said,
            stderr=said,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        late = False
        try:
            _limit(process.pid, limits, MOST_OUTPUT if stdout else None)
            with (running or Running()).counted(lambda: _end(process.pid)):
                late = not _exited(process.pid, limits.seconds)
        finally:
            # Until the leader is reaped, no other process group can get its number.
            _end(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(max(0, said.seek(0, os.SEEK_END) - KEPT_OUTPUT) if last else 0)
        words = said.read(KEPT_OUTPUT).decode(errors="replace").strip()
    seconds = usage.ru_utime + usage.ru_stime
    return Ended.of(process.returncode, seconds, words, limits.seconds if late else None)


def _limit(process: int, limits: CompilerLimits, output: int | None) -> None:
    # The processor's time is limited as well, for the case that this process is killed and cannot end the compiler.
    seconds = int(limits.seconds) + 10
    wanted = {resource.RLIMIT_AS: limits.memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
    if output is not None:
        wanted[resource.RLIMIT_FSIZE] = output
    with suppress(ProcessLookupError):
        for what, value in wanted.items():
            _, most = resource.prlimit(process, what)
            lower = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.prlimit(process, what, (lower, lower))


def _exited(process: int, seconds: float) -> bool:
    """Wait until the process has exited, at most ``seconds``; do not reap it."""
    descriptor = os.pidfd_open(process)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
