"""A process under limits: a compiler, a linker, or a program that is measured."""

import os
import resource
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import msgspec
from msgspec.structs import replace

from policybridge_client.llvm.process import KEPT_OUTPUT, CompilerLimits
from policybridge_core.errors import InvalidError
from policybridge_train.compiling.result import CompileResult, DecisionLog
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.pool import Running

MIB: Final = 1 << 20
_MOST_SECONDS: Final = 1e6
_MOST_MEMORY: Final = 1 << 60


@dataclass(frozen=True)
class Limits(CompilerLimits):
    """What one compilation may take: wall seconds, and bytes of address space.

    Raises:
        InvalidError: a limit is not above 0, or of a size that no system can keep to.

    """

    def __post_init__(self) -> None:
        # Not NaN either, with which every comparison is false.
        if not 0 < self.seconds <= _MOST_SECONDS:
            raise InvalidError(f"seconds={self.seconds:g}: a compilation has more than 0 and at most {_MOST_SECONDS:g}")
        if not 0 < self.memory <= _MOST_MEMORY:
            raise InvalidError(
                f"memory={self.memory / MIB:g} MiB: a compilation has more than 0 and at most {_MOST_MEMORY / MIB:g}"
            )

    @classmethod
    def read(cls, seconds: str, memory: str = "") -> "Limits":
        """Read limits from a task's options, in seconds and MiB; the defaults where one is empty.

        Raises:
            InvalidError: one is no number, or cannot be kept to.

        """
        try:
            return cls(float(seconds or cls.seconds), int(memory) * MIB if memory else cls.memory)
        except ValueError as error:
            raise InvalidError(f"seconds={seconds} or memory={memory} is no number") from error


@dataclass(frozen=True)
class Command:
    """A compilation (`policybridge_train.compiling.decider.Compilation`) without a host process.

    The compiler takes no advice, or its plugin fetches the advice.

    Attributes:
        words: the command.
        limits: of the compiler.
        running: where the compiler is counted while it runs.
        way: ``plain`` or ``plugin``.
        sessions: the file to which the plugin writes the ids of its sessions; ``None``: it writes none.

    """

    words: Sequence[str]
    limits: Limits
    running: Running
    way: str = "plain"
    sessions: Path | None = None

    @property
    def again(self) -> Sequence[str]:
        """The command."""
        return self.words

    def run(self) -> CompileResult:
        """Compile."""
        # Disable ccache: exploration decides by chance, so the object must not be cached for this command line.
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        done = compile_by(self.words, self.limits, environment, running=self.running)
        return replace(done, sessions=sessions_of(self.sessions)) if self.sessions and done.ok else done

    def log(self, _: ObjectFile) -> tuple[ObjectFile, DecisionLog] | None:
        """Give ``None``: this compilation keeps no log."""
        return None


class _Statistics(msgspec.Struct):
    """The part of the plugin's statistics that is read here."""

    sessions: list[str] = []


def sessions_of(statistics: Path) -> Sequence[str]:
    """Give the ids of a compilation's sessions, from the plugin's statistics."""
    try:
        return msgspec.json.decode(statistics.read_bytes(), type=_Statistics).sessions
    except FileNotFoundError:
        # If the compiler asks nothing, the plugin opens no session and writes no file.
        return []


def compile_by(  # noqa: PLR0913 - each is a choice of the caller's
    command: Sequence[str],
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    *,
    running: Running | None = None,
    last: bool = False,
) -> CompileResult:
    """Run a compiler to its end, or to that of its limits; its whole process group is ended then.

    Args:
        command: the compiler and its arguments.
        limits: of wall time and memory.
        environment: its variables; those of this process by default.
        cwd: its folder; that of this process by default.
        running: where it is counted while it runs, so that another thread can end it.
        last: whether the message is the end of the output, and not its beginning.

    Raises:
        OSError: it cannot be started.
        PreconditionError: all compilers of ``running`` were ended before.

    """
    with TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        late = False
        try:
            _limit(process.pid, limits)
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
    return CompileResult.ended(process.returncode, seconds, words, limits.seconds if late else None)


def _limit(process: int, limits: Limits) -> None:
    # The processor's time is limited as well, for the case that this process is killed and cannot end the compiler.
    seconds = int(limits.seconds) + 10
    wanted = {resource.RLIMIT_AS: limits.memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
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
