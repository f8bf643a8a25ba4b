"""Replays a recorded compilation without a server.

LLVM reads the recorded replies; each observation that it sends is compared with the recorded one. The first difference
ends the compiler, because LLVM loops forever at the end of its replies.
"""

import select
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from policybridge_client.llvm.comparison import Comparison, RecordedDecision, Replayed
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.defaults import defaults_of
from policybridge_client.llvm.flags import asking_flags, asking_variables
from policybridge_client.llvm.process import CompilerProcess, Surroundings
from policybridge_client.llvm.record import Compilation, object_digest, output_file, output_index
from policybridge_client.llvm.tasks import Task, load_task
from policybridge_core.errors import PolicyBridgeError, PreconditionError

_LOOK: Final = 0.02
"""Seconds between two reads of LLVM's output."""


@dataclass(frozen=True)
class RecordedCompilation:
    """A recorded compilation.

    Attributes:
        compilation: how the compiler was started.
        decisions: all decisions, in order.
        object: the digest of the object file; ``None`` if it is not known.

    """

    compilation: Compilation
    decisions: Sequence[RecordedDecision]
    object: float | None


def replay(recorded: RecordedCompilation, surroundings: Surroundings | None = None) -> Replayed:
    """Compile again as recorded, and compare the observations and the object.

    Args:
        recorded: the recorded compilation.
        surroundings: the compiler's environment and streams, and its folder if it is not the recorded one.

    Raises:
        InvalidError: the command starts no known compiler.
        PreconditionError: the command compiles several sources, and cannot be replayed.
        OSError: the compiler cannot be started.

    """
    compiler = CompilerCommand.of(recorded.compilation.command)
    task = load_task(recorded.compilation.task)
    given = surroundings or Surroundings()
    cwd = recorded.compilation.cwd if given.cwd is None else given.cwd
    with tempfile.TemporaryDirectory(prefix="policybridge-replay-") as name:
        return _Replay(compiler, task, recorded, Path(name)).run(
            Surroundings(cwd, given.env, given.stdin, given.stdout, given.stderr)
        )


class _Replay:
    def __init__(self, compiler: CompilerCommand, task: Task, recorded: RecordedCompilation, folder: Path) -> None:
        self._recorded = recorded
        self._defaults = defaults_of(compiler, task)
        self._folder = folder
        base = str(folder / "llvm")
        self._observations = folder / "llvm.out"
        self._object = folder / "object"
        flags = asking_flags(task, base, recorded.compilation.growth_limit, self._defaults)
        self._command = self._to_our_object(compiler.with_flags(flags), len(compiler.start))
        self._variables = asking_variables(compiler.kind, folder)
        self._comparison = Comparison(recorded.decisions, self._defaults)
        self._unplayable = self._write_replies(task, Path(f"{base}.in"))

    def _to_our_object(self, command: list[str], start: int) -> list[str]:
        # Write another object file: the recorded one may be in use.
        index = output_index(command)
        if index is not None:
            return [*command[:index], str(self._object), *command[index + 1 :]]
        return [*command[:start], "-o", str(self._object), *command[start:]] if output_file(command) else command

    def _write_replies(self, task: Task, file: Path) -> Replayed | None:
        replies = b""
        for step, decision in enumerate(self._recorded.decisions, 1):
            signature = decision.signature
            observation = np.ndarray(1, signature.features.dtype, decision.observation)
            advice = np.ndarray(1, signature.advice_layout.dtype, decision.advice)
            try:
                replies += task.legal(observation, advice)
            except PolicyBridgeError as error:
                return Replayed(step - 1, f"the recorded advice is not legal for LLVM: {error}", step)
        file.write_bytes(replies)
        self._observations.touch()
        return None

    def run(self, surroundings: Surroundings) -> Replayed:
        if self._unplayable is not None:
            return self._unplayable
        with CompilerProcess(self._command, surroundings, self._variables) as process:
            if not self._compare(process):
                return self._comparison.result()
            status = process.wait()
        if status:
            return Replayed(self._comparison.decisions, f"the compiler ended with status {status}")
        compared = self._comparison.ended()
        return self._compared_object(compared) if compared.identical else compared

    def _compare(self, process: CompilerProcess) -> bool:
        """Compare until the compiler ends; return false as soon as something differs."""
        poll = select.poll()
        poll.register(process, select.POLLIN)
        ended = False
        with self._observations.open("rb") as file:
            while not ended:
                # Check for the end first, then read, so that no output before the end is missed.
                ended = bool(poll.poll(_LOOK * 1000))
                if self._observations.stat().st_size < file.tell():
                    raise PreconditionError("the command compiles several sources, and each would ask from the start")
                if not self._comparison.take(file.read()):
                    return False
        return True

    def _compared_object(self, compared: Replayed) -> Replayed:
        wanted = self._recorded.object
        if wanted is None:
            return compared
        if object_digest(self._object) != wanted:
            return Replayed(compared.decisions, "all decisions are the same, but the object differs")
        return Replayed(compared.decisions, object=True)
