"""One compile, measured; and the same as a job, which any machine of a farm can do."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from msgspec.structs import replace

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_train.compiling.compiler import CompileRecipe, CompileTool
from policybridge_train.compiling.decider import Decider, KeepsLog, OfMachine
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.objectives import Objectives
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Farm, Machine, Shared
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, Status

T = TypeVar("T")
Costs = Mapping[str, float]

_TRIES: Final = 5


@dataclass(frozen=True)
class Wanted:
    """The measurements and files to take of a compile.

    Attributes:
        objectives: the names of the totals (`policybridge_train.compiling.objectives.OBJECTIVES`).
        arguments: further arguments of ``clang -cc1``.
        units: gives the costs by unit from the first objective's costs by function; ``None``: no costs.
        keep: whether the object comes with the result.

    """

    objectives: tuple[str, ...] = ("text", "exec")
    arguments: tuple[str, ...] = ()
    units: Callable[[Costs], Costs] | None = None
    keep: bool = False


_OF_ANOTHER: Final = ("unknown argument", "Producer: 'LLVM")
"""Of the messages of a clang about the modules of a later one."""


def compile_module(tool: CompileTool, module: Module, decider: Decider, wanted: Wanted) -> CompileResult:
    """Compile a module and measure the object; a failure is a result.

    Raises:
        PolicyBridgeError: all compilers were ended.

    """
    with TemporaryDirectory(prefix="policybridge-compile-") as name:
        try:
            return _compiled(tool, module, decider, wanted, Path(name))
        except (PolicyBridgeError, OSError) as error:
            if tool.running.over:
                raise
            return CompileResult.failed(str(error))


def _compiled(tool: CompileTool, module: Module, decider: Decider, wanted: Wanted, folder: Path) -> CompileResult:
    output = folder / "object"
    objectives = Objectives(wanted.objectives, folder)
    compilation = decider.compilation(tool, module, output, [*wanted.arguments, *objectives.arguments])
    done = compilation.run()
    if done.status is not Status.OK:
        return _explained(done, tool.compiler.name)
    linked = module if isinstance(module, LinkedModule) else None
    made, apart = linked.read(output) if linked else [ObjectFile.read(output)] * 2
    asked, log = compilation.log(apart) if isinstance(compilation, KeepsLog) else (apart, None)
    costs = objectives.costs(asked) if wanted.units else {}
    costs = linked.lasting(costs) if linked else costs
    return replace(
        done,
        costs=wanted.units(costs) if wanted.units else {},
        totals=objectives.totals(made),
        sections=made.loaded,
        digest=hashlib.sha256(made.data).hexdigest(),
        log=log,
        content=made.data if wanted.keep else b"",
    )


def _explained(failed: CompileResult, compiler: str) -> CompileResult:
    """Add the cure to the message of a compiler that does not know the arguments or the bitcode of a later one."""
    if not any(words in failed.message for words in _OF_ANOTHER):
        return failed
    cure = f"compile with the clang that made the corpus, or make the corpus again with --compiler {compiler}"
    return replace(failed, message=f"{failed.message}: {cure}")


@dataclass(frozen=True)
class SharedModule:
    """A module for jobs."""

    module: Module
    bitcode: Shared[Path]
    profile: Shared[Path] | None = None

    @classmethod
    def of(cls, module: Module, farm: Farm) -> "SharedModule":
        """Share a module.

        Raises:
            OSError: its bitcode or its profile cannot be read.

        """
        profile = None if module.profile is None else farm.share_file(module.profile)
        return cls(module, farm.share_file(module.bitcode), profile)

    def at(self, machine: Machine) -> Module:
        """Give the module as it is on a machine."""
        file = self.bitcode.at(machine)
        if file == self.module.bitcode:
            return self.module
        profile = None if self.profile is None else self.profile.at(machine)
        return dataclasses.replace(self.module, file=file, profile_file=profile)


@dataclass(frozen=True)
class CompileJob:
    """Compiles a module once, and again if something from outside made it fail."""

    recipe: CompileRecipe
    module: SharedModule
    decider: Decider
    wanted: Wanted

    def run(self, machine: Machine) -> CompileResult:
        """Compile."""
        tool, module, decider = machine.tool(self.recipe), self.module.at(machine), self.decider

        def once(again: bool) -> CompileResult:
            here = decider.at(machine, again=again) if isinstance(decider, OfMachine) else decider
            return compile_module(tool, module, here, self.wanted)

        try:
            return retried(once, machine.running, asks=decider.asks)
        except UnavailableError as error:
            return CompileResult.failed(str(error))


@dataclass(frozen=True)
class FarmCompiler:
    """Compiles by a farm."""

    farm: Farm
    recipe: CompileRecipe

    def compile(self, module: Module, decider: Decider, wanted: Wanted) -> CompileResult:
        """Compile; see `compile_module`.

        Raises:
            PolicyBridgeError: the farm was ended, or no machine of it can do this.

        """
        return self.farm.do(CompileJob(self.recipe, SharedModule.of(module, self.farm), decider, wanted))


def retried(
    once: Callable[[bool], T],
    running: Running,
    *,
    asks: bool,
    result_of: Callable[[T], CompileResult] = lambda made: made,  # type: ignore[assignment,return-value]
) -> T:
    """Compile, and again after a failure from outside: a compiler killed there must not change the result.

    A compile that asks a server is repeated after every failure but a time-out: the server may have died.

    Args:
        once: compiles; its argument says whether it did so before.
        running: if it is ended, there is no other try.
        asks: whether the compiler asks a server.
        result_of: gives the result of what ``once`` gives.

    Raises:
        UnavailableError: there is no server.

    """
    for number in range(_TRIES - 1):
        try:
            made = once(number > 0)
        except UnavailableError:
            if running.over:
                raise
            continue
        result = result_of(made)
        failed = result.status not in {Status.OK, Status.TIMEOUT} and (asks or result.signal == SIGKILL)
        if not failed or running.over:
            return made
    return once(True)
