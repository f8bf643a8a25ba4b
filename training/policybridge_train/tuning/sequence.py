"""Compiles of a search without a plugin: decisions by sequence, for zig and other clangs that load none."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import numpy as np
from msgspec.structs import replace

from policybridge_client.decisions import By, SiteLog
from policybridge_client.decisions.sites import Numbers
from policybridge_client.llvm.asked import Asked, AskLimits, asked
from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Limits, compile_by
from policybridge_train.compiling.module import Module
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.pool import Running
from policybridge_train.tuning.measuring import NUMBERS, CompileError, Decisions, Measurement, measured

_COST = 5
"""LLVM's cost of an instruction (llvm/Analysis/InlineCost.h)."""

_BLOCK = 5
"""Instructions of a basic block, on average."""


@dataclass(frozen=True)
class SequenceMeasurer:
    """Compiles in the interactive mode; see `policybridge_client.llvm.asked`.

    A compile without decisions is nearly always the plain one, but not where LLVM's machine-learned advisor never
    inlines and its own does (unreachable calls, recursion). So without decisions it compiles twice, and the sizes of
    the whole are those of the plain compile: they are what decisions have to be better than.

    Attributes:
        running: where each compiler is counted while it runs.

    """

    compiler: Compiler
    limits: Limits
    running: Running
    by: By = "sequence"

    def measure(self, module: Module, decisions: Decisions, keep: Path | None = None) -> Measurement:
        """Compile once; see `policybridge_train.tuning.measuring.Measurer`.

        Raises:
            CompileError: there is no object.
            PreconditionError: LLVM's own decisions are not known: up to LLVM 20, at other levels than -Oz.

        """
        with TemporaryDirectory(prefix="policybridge-tune-") as name:
            output = Path(name) / "object"
            limits = AskLimits(self.limits.seconds, self.limits.memory)
            command = self.compiler.command(module, output)
            try:
                done = asked(command, decisions, limits=limits, counted=self.running.counted)
            except PreconditionError as error:
                raise PreconditionError(f"{module.name}: {error}") from error
            if not done.ok:
                raise CompileError(f"{module.name}: {_why(done)}")
            made = ObjectFile.read(output)
            found = measured(made, done.log, _numbers(done.log, made))
            if not decisions:
                found = self._with_plain(found, module, output)
            if keep is not None:
                copyfile(output, keep)
            return found

    def _with_plain(self, found: Measurement, module: Module, output: Path) -> Measurement:
        done = compile_by(self.compiler.command(module, output), self.limits, running=self.running)
        if not done.ok:
            raise CompileError(f"{module.name}: {done.status.value}: {done.message}")
        plain = ObjectFile.read(output)
        return replace(found, text=plain.text, exec=plain.exec, object_digest=plain.digest)


def _why(done: Asked) -> str:
    if done.late:
        return "it took too long"
    return f"status {done.status}: {done.message}"


def _numbers(log: SiteLog, made: ObjectFile) -> Mapping[str, Numbers]:
    """Give what the plugin would log; LLVM sends some of it, the object tells some, and the rest is estimated."""
    if not len(log):
        return dict.fromkeys(NUMBERS, np.zeros(0))
    sent = log.numbers
    shared = set(made.globals())
    return {
        "callee_local": np.array([name not in shared for name in log.callee], np.float64),
        "callee_uses": sent["callee_uses"],
        "cost": sent["cost"],
        "threshold": sent["threshold"],
        "caller_instructions": sent["caller_basic_block_count"] * _BLOCK,
        "callee_instructions": sent["unsimplified_common_instructions"] / _COST + sent["simplified_instructions"],
        "callee_blocks": sent["callee_blocks"],
        "constant_arguments": sent["constant_arguments"],
        "arguments": np.maximum(-sent["callsite_cost"] / _COST - 1, 0),
        "loop_depth": np.zeros(len(log)),
    }
