"""Programs of decisions: their modules are compiled, they are linked by the build's own command, and run."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import for_each
from policybridge_train.speed.relinking import Relinking
from policybridge_train.speed.running import Ran, Runner
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.module import compile_with

_SAME: Final = 0.002
"""The share by which the counts of two runs of one program may differ."""


@dataclass(frozen=True)
class Making:
    """Makes programs of decisions.

    Attributes:
        compiler: of modules.
        relinking: of the program.
        runner: runs it.
        jobs: compiles at a time.
        running: compilers and runs.
        objects: the folder of the objects.
        limits: of a link.

    """

    compiler: FarmCompiler
    relinking: Relinking
    runner: Runner
    jobs: int
    running: Running
    objects: Path
    limits: Limits
    _made: dict[str, tuple[CompileResult, Path]] = field(default_factory=dict)

    def compiled(self, modules: Sequence[tuple[Module, Decided]]) -> list[tuple[CompileResult, Path]]:
        """Compile modules; those that were compiled with the same decisions before are there already.

        Raises:
            PolicyBridgeError: one does not compile.

        """
        # An exception in a job ends all that runs, and a compile that fails is no reason for it.
        made = list(for_each(lambda each: self._tried(*each), modules, self.jobs, self.running))
        for each in made:
            if isinstance(each, PolicyBridgeError):
                raise each
        return [each for each in made if not isinstance(each, PolicyBridgeError)]

    def _tried(self, module: Module, decided: Decided) -> tuple[CompileResult, Path] | PolicyBridgeError:
        try:
            return self._one(module, decided)
        except PolicyBridgeError as error:
            if self.running.over:
                raise
            return error

    def _one(self, module: Module, decided: Decided) -> tuple[CompileResult, Path]:
        key = f"{module.name} {hashlib.sha256(msgspec.msgpack.encode(decided, order='deterministic')).hexdigest()}"
        if key not in self._made:
            result = compile_with(self.compiler, module, decided, keep=True)
            path = self.objects / f"{result.digest}.o"
            path.write_bytes(result.content)
            self._made[key] = msgspec.structs.replace(result, content=b""), path
        return self._made[key]

    def linked(self, objects: Mapping[str, Path], letter: str, space: int = 0) -> tuple[Path, int]:
        """Link the program with ``space`` bytes before its code; give its file and the size of its text in bytes."""
        program = self.runner.place(letter)
        self.relinking.link(objects, program, self.objects, self.limits, self.running, space=space)
        return program, ObjectFile.read(program).text


class Whole(NamedTuple):
    """A program with decisions, as it was run without moves.

    Attributes:
        counted: of the run.
        text: bytes.
        decided: by module.
        results: of the compiles, by module.
        objects: by module.

    """

    counted: Counted
    text: int
    decided: Mapping[str, Decided]
    results: Mapping[str, CompileResult]
    objects: Mapping[str, Path]

    @property
    def cycles(self) -> int:
        """Of the run."""
        return self.counted.total


def repeated(runner: Runner, program: Path) -> tuple[Counted, Ran]:
    """Run a program twice.

    Raises:
        PreconditionError: the runs differ.

    """
    (first, ran), (second, again) = runner.count(program), runner.count(program)
    if ran.output != again.output:
        raise PreconditionError(
            "--run prints something else in each run, so that nothing can be compared: let it print no times, "
            "addresses or random numbers (fix its seed), and leave no file that changes the next run"
        )
    if abs(first.total - second.total) > _SAME * first.total:
        raise PreconditionError(
            f"--run takes {first.total:,} cycles in one run and {second.total:,} in the next: let it work alike each "
            "time, without times, threads, random numbers (fix its seed) and files that change the next run"
        )
    return first, ran
