"""A compiler that only sleeps, beside all that a real compile has: its process, its module, its result."""

from dataclasses import dataclass
from tempfile import TemporaryDirectory

from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.job import SharedModule
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine
from policybridge_train.processes.process import compile_by

FUNCTIONS = 100
"""Of a module, each with its cost, which is about what our corpus has."""


@dataclass(frozen=True)
class Sleeping:
    """Sleeps for some seconds in a process of its own, and tells what functions cost."""

    module: SharedModule
    seconds: float

    def run(self, machine: Machine) -> CompileResult:
        """Sleep."""
        module = self.module.at(machine)
        with TemporaryDirectory(prefix="policybridge-bench-") as folder:
            done = compile_by(["sleep", f"{self.seconds:g}"], Limits(), cwd=folder, running=machine.running)
        if not done.ok:
            raise PreconditionError(f"sleep: {done.message}")
        size = module.bitcode.stat().st_size
        return CompileResult(
            {f"{number:016x}": float(size) for number in range(FUNCTIONS)}, ["a session"], {"text": size}
        )
