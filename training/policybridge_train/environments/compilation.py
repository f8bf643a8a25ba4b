"""One compilation that waits for an answer after each of its questions, for as long as it takes."""

import os
import resource
import select
import subprocess
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO

import numpy as np

from policybridge_client.llvm.asked import asking_flags, asking_variables
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.inliner import Defaults, defaults_of
from policybridge_client.llvm.process import KEPT_OUTPUT, Channel, CompilerProcess, Watchdog
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.tasks import Task, check_llvm_signature
from policybridge_core.errors import DeadlineError, InvalidError, PolicyFailedError
from policybridge_serdes import Signature, Values
from policybridge_serdes.interactive import Context, Event, Header, InteractiveReader
from policybridge_train.compiling.limits import Limits


@dataclass(frozen=True, eq=False)
class Question:
    """The compiler's observation at a decision, and its context: a function's name, or nothing."""

    observation: Values
    context: str


class WaitingCompilation:
    """A compiler process that asks about one task. It is ended with this object, or when this process is killed.

    Args:
        task: whose decisions it asks for; ``None``: a plain compilation.
        command: gives the compiler and its arguments, and further arguments of cc1, by the compilation's own folder.
        limits: the seconds that one question may take, and the bytes of memory.

    Attributes:
        folder: the compilation's folder, which is removed at its end.
        signature: of features and advice; ``None`` until the compiler has told it.
        payloads: the observations of all questions so far.
        contexts: their contexts.
        answers: the answers so far.

    Raises:
        OSError: the compiler cannot be started.
        UnavailableError: there is no place for temporary files.

    """

    def __init__(
        self, task: Task | None, command: Callable[[Path], tuple[Sequence[str], Sequence[str]]], limits: Limits
    ) -> None:
        self.signature: Signature | None = None
        self.payloads: list[bytes] = []
        self.contexts: list[str] = []
        self.answers: list[bytes] = []
        self._seconds = limits.seconds
        self._reader = InteractiveReader()
        self._events: deque[Event] = deque()
        self._context = ""
        with ExitStack() as stack:
            self._channel = stack.enter_context(Channel())
            self.folder = self._channel.folder
            self._said: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            words, frontend = command(self.folder)
            compiler = CompilerCommand.of(words)
            self._defaults = Defaults() if task is None else defaults_of(compiler, task)
            flags = [] if task is None else asking_flags(task, self._channel.base, "inf", self._defaults)
            streams = Surroundings(stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said)
            variables = asking_variables(compiler.kind, self.folder)
            started = CompilerProcess(compiler.with_flags(flags, frontend), streams, variables)
            self._process = stack.enter_context(started)
            stack.enter_context(Watchdog(started.group, self.folder))
            with suppress(ProcessLookupError):
                resource.prlimit(started.group, resource.RLIMIT_AS, (limits.memory, limits.memory))
            self._clean = weakref.finalize(self, _close, stack.pop_all(), os.getpid())

    @property
    def defaults(self) -> Defaults:
        """What knows the compiler's own decisions, as far as they can be known."""
        return self._defaults

    def table(self) -> Values:
        """Give the observations of all questions so far, of which there is one at least, as records."""
        if self.signature is None:
            raise InvalidError("the compiler has not told its features")
        return np.frombuffer(b"".join(self.payloads), self.signature.features.dtype)

    def next(self) -> Question | None:
        """Wait for the next question; ``None`` when the compiler has ended.

        Raises:
            DeadlineError: it neither asks nor ends in time.
            InvalidError: it sends what cannot be understood.

        """
        end = monotonic() + self._seconds
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, bytes):
                    return self._question(event)
                self._take(event)
            if not self._wait(end):
                return None
            self._events.extend(self._reader.feed(self._channel.read()))

    def answer(self, advice: bytes) -> None:
        """Answer the question; the compiler goes on."""
        self.answers.append(advice)
        self._channel.reply(advice)

    def finish(self) -> None:
        """Answer all that is asked by the compiler's own decisions, and reap the compiler; see `next` and `succeed`.

        Raises:
            PreconditionError: the compiler's own decisions are not known.

        """
        while (question := self.next()) is not None:
            self.answer(self._defaults.answer(question.observation))
        self.succeed()

    def succeed(self) -> None:
        """Reap the compiler, which has ended.

        Raises:
            PolicyFailedError: it failed or crashed; the message has the status and the output.

        """
        status = self._process.wait()
        if not status:
            return
        self._said.seek(0)
        words = self._said.read(KEPT_OUTPUT).decode(errors="replace").strip()
        how = f"signal {status - 128}" if status > 128 else f"status {status}"
        raise PolicyFailedError(
            f"the compiler ended with {how} after {len(self.answers)} decisions: {words}".rstrip(": ")
        )

    def close(self) -> None:
        """End the compiler, if it still runs, and remove the folder. A second call does nothing."""
        self._clean()

    def _wait(self, end: float) -> bool:
        """Wait until the compiler has written (true) or ended (false)."""
        poll = select.poll()
        for source in (self._process, self._channel):
            poll.register(source, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, end - monotonic()) * 1000)]
        if not ready:
            raise DeadlineError(f"the compiler neither asked nor ended within {self._seconds:g} seconds")
        # One that has ended may have written before, such as the features of a task about which it then asks nothing.
        return self._channel.fileno() in ready

    def _take(self, event: Event) -> None:
        if isinstance(event, Header):
            check_llvm_signature(event.signature)
            self.signature = self._defaults.extended(event.signature)
        elif isinstance(event, Context):
            self._context = event.name

    def _question(self, payload: bytes) -> Question:
        if self.signature is None:
            raise InvalidError("an observation came before the header line with the features")
        whole = self._defaults.completed(payload)
        self.payloads.append(whole)
        self.contexts.append(self._context)
        return Question(np.ndarray(1, self.signature.features.dtype, whole), self._context)


def _close(stack: ExitStack, process: int) -> None:
    # A forked process has a copy of this object, and must leave its parent's compiler alone.
    if os.getpid() == process:
        stack.close()
