"""The private pair of named pipes between the host and one compiler process, and starting a compiler that uses it."""

import os
import select
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.process import CompilerProcess, Surroundings, Watchdog
from policybridge_client.llvm.signals import AWAKE_WITHIN
from policybridge_client.llvm.tasks import INLINE, Defaults, Task
from policybridge_core.errors import UnavailableError
from policybridge_serdes.interactive import Event, InteractiveReader

_PIECE: Final = 1 << 16
"""Capacity of a pipe, in bytes."""


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


def serve(process: CompilerProcess, channel: Channel, answer: Callable[[Event], None]) -> None:
    """Pass LLVM's events to ``answer`` until the compiler has exited, or its time limit is reached.

    The pipes never report an end; see `Channel`.

    Raises:
        InvalidError: LLVM breaks the protocol.

    """
    end, ended = monotonic() + process.seconds_left, process.fileno()
    reader = InteractiveReader()
    poll = select.poll()
    for source in (ended, channel.fileno()):
        poll.register(source, select.POLLIN)
    while (left := end - monotonic()) > 0:
        ready = [descriptor for descriptor, _ in poll.poll(min(left, AWAKE_WITHIN) * 1000)]
        if ended in ready:
            return
        for event in reader.feed(channel.read()) if ready else ():
            answer(event)


def start_asking(  # noqa: PLR0913, PLR0917 - the parts of one compilation
    stack: ExitStack,
    compiler: CompilerCommand,
    task: Task,
    growth_limit: str,
    defaults: Defaults,
    surroundings: Surroundings,
    frontend: Sequence[str] = (),
) -> tuple[CompilerProcess, Channel]:
    """Start a compiler that asks. Closing the stack ends it if it still runs.

    ``frontend`` are further words; see `CompilerCommand.with_flags`.

    Raises:
        UnavailableError: the channel cannot be made.
        OSError: the compiler cannot be started.

    """
    channel = stack.enter_context(Channel())
    command = compiler.with_flags(asking_flags(task, channel.base, growth_limit, defaults), frontend)
    variables = asking_variables(compiler.kind, channel.folder)
    process = stack.enter_context(CompilerProcess(command, surroundings, variables))
    with suppress(OSError):
        # The watchdog only cleans up after a killed host; go on without it.
        stack.enter_context(Watchdog(process.group, channel.folder))
    return process, channel


def asking_flags(task: Task, base: str, growth_limit: str, defaults: Defaults) -> list[str]:
    """Return LLVM's flags for a channel at ``base``."""
    flags = [flag.format(base=base) for flag in task.flags]
    if task.name == INLINE.name:
        # Beyond LLVM's own limit nothing is inlined. So it is used only if LLVM's decisions are unknown; else `Growth`
        # limits.
        flags.append(f"-ml-advisor-size-increase-threshold={'inf' if defaults.known else growth_limit}")
    return [*flags, *defaults.flags]


def asking_variables(kind: Kind, folder: Path) -> dict[str, str]:
    """Return the environment variables for the compiler; ``folder`` is the channel's folder."""
    # An object of a policy must neither come from a cache nor be stored in one.
    variables = {"CCACHE_DISABLE": "1"}
    if kind is Kind.ZIG:
        variables["ZIG_LOCAL_CACHE_DIR"] = str(folder / "zig")
    return variables
