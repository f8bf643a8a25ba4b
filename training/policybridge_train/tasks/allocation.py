"""Register allocation by a policy: what eviction and priority have in common. A function's spills are its cost.

The corpus is compiled at -O2, whatever it was recorded at, and LLVM's remarks tell what each function spills.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.contract import Connection
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.config import HostConfig
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_serdes import TensorSpec, Values
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.hosted import compile_hosted
from policybridge_train.compiling.job import Compiled, Limits, compile_by
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.spills import remark_arguments, spill_costs
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.options import newest_compiler
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.pool import Running
from policybridge_train.tasks.task import Asking, Case, Ran

SPEED: Final = (
    *("-O2", "-vectorize-loops", "-vectorize-slp"),
    *("-mllvm", "-force-remove-attribute=minsize", "-mllvm", "-force-remove-attribute=optsize"),
)
"""Arguments of cc1 that compile bitcode for speed which was recorded for size: each function has the level in its
attributes, which LLVM would obey (llvm/lib/Transforms/IPO/ForceFunctionAttrs.cpp takes them away)."""


class RegisterAllocation:
    """A task of LLVM's register allocator, by its interactive mode.

    Args:
        compiler: a clang's name or path; by default the newest that is found.
        seconds: limit of one compilation.
        memory: limit of one compilation, in MiB.

    Attributes:
        name: as ``policybridge run --task`` has it.
        features: what LLVM sends.
        advice: what it wants.
        default: empty: LLVM does not send its own decision.

    Raises:
        NotFoundError: there is no such compiler.
        InvalidError: a limit is no number.

    """

    name: str
    features: Sequence[TensorSpec]
    advice: TensorSpec
    default: str = ""

    def __init__(self, compiler: str = "", seconds: str = f"{Limits().seconds:g}", memory: str = "8192") -> None:
        self.compiler = Compiler.find(compiler) if compiler else newest_compiler()
        self.limits = Limits.read(seconds, memory)
        self.running = Running()
        self._modules: dict[str, Module] = {}

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the modules; see `Task`."""
        if corpus is None:
            raise InvalidError(
                f"the task {self.name} needs a corpus: give --corpus DIR (policybridge corpus makes one)"
            )
        return [self.know(module) for module in Corpus.open(corpus).modules]

    def know(self, module: Module) -> Case:
        """Give the case of a module, which can be run from now on."""
        self._modules[module.name] = module
        return Case(module.name, module.project, module.language)

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give the module of a case; see `policybridge_train.tasks.recipe.OfModules`."""
        return [self._modules[case.name]] if case.name in self._modules else []

    def run(self, case: Case, asking: Asking | None) -> Ran:
        """Compile a module by the policy, or by LLVM's own decisions where ``asking`` is ``None``; see `Task`.

        What a function spills is a sum over the stores, reloads and copies that the allocator added, weighed as LLVM
        does, each times the frequency of its block relative to the function's entry (`spill_costs`). A function's cost
        is log2(1 + that): one deep loop would outweigh all other functions else. Of the totals, ``spills_log2`` is the
        sum of these costs, and ``spills`` that of the spills themselves.

        Raises:
            NotFoundError: `cases` gave no such case.

        """
        return self._run(case, lambda words: self._compiled(case, words, asking))

    def run_by(self, case: Case, connection: Connection) -> Ran:
        """Compile a module with the answers of a connection of this process, as `run` does with a server's."""
        config = HostConfig("connection", "connection", task=self.name, fallback="error", timeout=self.limits.seconds)
        return self._run(case, lambda words: self._hosted(words, config, connection))

    def _run(self, case: Case, compile_: Callable[[Sequence[str]], Compiled]) -> Ran:
        module = self._modules.get(case.name)
        if module is None:
            raise NotFoundError(f"there is no module {case.name!r} in the corpus that was opened")
        with TemporaryDirectory(prefix="policybridge-train-") as name:
            output, remarks = Path(name, "object"), Path(name, "remarks")
            try:
                command = self.compiler.command(module, output, [*SPEED, *remark_arguments(remarks)])
                return _ran(compile_(command), output, remarks)
            except (PolicyBridgeError, OSError) as error:
                return Ran(failure=str(error))

    def _compiled(self, case: Case, words: Sequence[str], asking: Asking | None) -> Compiled:
        if asking is None:
            return compile_by(words, self.limits, running=self.running)
        explored = asking.exploration
        config = HostConfig(
            asking.policy,
            asking.server,
            task=self.name,
            fallback="error",
            labels=asking.labels,
            exploration=None if explored is None else explored.of_module(case.name),
        )
        return self._hosted(words, config)

    def _hosted(self, words: Sequence[str], config: HostConfig, connection: Connection | None = None) -> Compiled:
        command = CompilerCommand.of(words)
        asking = [*command.start, *command.arguments]
        return compile_hosted(asking, config, self.limits, self.running, connection=connection)

    def end(self) -> None:
        """End all compilers; see `Task`."""
        self.running.end()

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002 - of `Task`
        """Give the function of each decision, which LLVM names; see `Task`."""
        return [str(name) for name in contexts]


def _ran(done: Compiled, output: Path, remarks: Path) -> Ran:
    if not done.ok:
        return Ran(failure=f"{done.status.value}: {done.message}")
    spills = spill_costs(remarks)
    # LLVM remarks on functions that spill or copy; the others cost nothing.
    costs = dict.fromkeys(ObjectFile.read(output).functions, 0.0)
    costs |= {name: math.log2(1 + cost) for name, cost in spills.items()}
    totals = {"spills_log2": sum(costs.values()), "spills": sum(spills.values())}
    return Ran(costs, done.sessions, totals)
