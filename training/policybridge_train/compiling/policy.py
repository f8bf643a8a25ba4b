"""Decisions of a policy: asked by the plugin where the compiler loads it, else in LLVM's interactive mode."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import ClassVar, Final, Self

from msgspec.structs import replace

from policybridge_client.contract import Connection
from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.process import KEPT_OUTPUT
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Exploration, PolicyReference
from policybridge_train.compiling.compilation import Command, compile_command, plugin_command
from policybridge_train.compiling.compiler import CompileTool
from policybridge_train.compiling.decider import Compilation, Decider
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.contract import Machine
from policybridge_train.processes.process import Running, Status

_OWN: Final = (sys.executable, "-m", "policybridge_client.cli")
_SOCKET: Final = "socket:"


def compile_hosted(
    command: Sequence[str],
    config: HostConfig,
    limits: Limits,
    running: Running,
    *,
    connection: Connection | None = None,
) -> CompileResult:
    """Run a compiler as `run_compiler` does, under limits.

    A policy that fails is a failure of the compilation, if ``config`` says so (``fallback="error"``). Where it
    succeeds, the message says how many decisions the policy did not make. ``connection`` replaces the server's.

    Raises:
        OSError: it cannot be started.
        PreconditionError: all compilers of ``running`` were ended before.

    """
    with TemporaryFile() as said:
        try:
            surroundings = Surroundings(None, None, DEVNULL, said, said, limits, running.counted)
            report = run_compiler(command, config, surroundings, connection=connection)
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))
        said.seek(0)
        words = said.read(KEPT_OUTPUT).decode(errors="replace").strip()
    if running.over:
        report.raise_error()
    if report.error is not None and not report.late:
        return CompileResult(status=Status.FAILED, seconds=report.cpu_seconds, message=f"no advice: {report.error}")
    done = CompileResult.of(report.status, report.cpu_seconds, words, limits.seconds if report.late else None)
    return replace(done, message=_note(report), sessions=report.session_ids) if done.ok else done


def _note(report: Report) -> str:
    counted = report.statistics
    if report.fallback is not None:
        return f"not all decisions are the policy's: {report.fallback.reason}"
    return f"{counted.limited} decisions are LLVM's own, beyond the growth limit" if counted.limited else ""


@dataclass(frozen=True)
class ByPolicy(Decider):
    """A policy of a server. A compile without an answer fails.

    Attributes:
        policy: ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.
        server: the server's address.
        task: the name of the client's task.
        growth_limit: the factor of a module's size that decisions may add to it.
        exploration: how sessions depart from the best advice; ``None``: they do not.
        labels: of the sessions.
        traced: whether the result has the ids of the sessions.

    Raises:
        InvalidError: the name is that of no policy.

    """

    policy: str
    server: str
    task: str = INLINE.name
    growth_limit: float = GROWTH_LIMIT
    exploration: Exploration | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    traced: bool = False
    asks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        PolicyReference.parse(self.policy)

    def at(self, machine: Machine, *, again: bool = False) -> Self:
        """Ask the server of the machine."""
        return dataclasses.replace(self, server=machine.serving(self.server, self.policy, again=again).address)

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation that asks."""
        if not isinstance(module, LinkedModule) and (
            self.task != INLINE.name or not self.server.startswith(_SOCKET) or tool.plugin is None
        ):
            words = compile_command(tool.compiler, module, output, extra)
            return Hosted(words, self._host(module.name), tool.limits, tool.running)
        statistics = output.with_name("statistics") if self.traced else None
        words, variables = plugin_command(tool, module, output, extra, self._options(statistics))
        return Command(words, tool.limits, tool.running, "plugin", statistics, variables)

    def _options(self, statistics: Path | None) -> Iterator[tuple[str, str]]:
        yield from (("server", self.server), ("policy", self.policy), ("fallback", "error"))
        yield "growth-limit", f"{self.growth_limit:g}"
        if statistics is not None:
            yield from (("retry-after", "0"), ("stats", str(statistics)))
        for name, value in self.labels.items():
            yield "label", f"{name}={value}"
        if self.exploration is not None:
            yield "explore", ",".join(f"{name}={value}" for name, value in vars(self.exploration).items())

    def _host(self, module: str) -> HostConfig:
        explored = None if self.exploration is None else self.exploration.of_module(module)
        return HostConfig(
            self.policy,
            self.server,
            task=self.task,
            fallback="error",
            growth_limit=self.growth_limit,
            labels=self.labels,
            exploration=explored,
        )


@dataclass(frozen=True)
class ByConnection(Decider):
    """The answers of a connection of this process, for a task of LLVM's interactive mode."""

    connection: Connection
    task: str

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation that asks."""
        words = compile_command(tool.compiler, module, output, extra)
        config = HostConfig("connection", "connection", task=self.task, fallback="error", timeout=tool.limits.seconds)
        return Hosted(words, config, tool.limits, tool.running, self.connection)


@dataclass(frozen=True)
class Hosted:
    """A compiler that asks in LLVM's interactive mode."""

    command: Sequence[str]
    host: HostConfig
    limits: Limits
    running: Running
    connection: Connection | None = None
    way: ClassVar[str] = "interactive"

    @property
    def again(self) -> Sequence[str]:
        """The command behind ``policybridge run``."""
        asking = {
            "--policy": str(self.host.policy),
            "--server": self.host.server,
            "--task": self.host.task,
            "--fallback": "error",
            "--growth-limit": f"{self.host.growth_limit:g}",
        }
        return [*_OWN, "run", *(word for pair in asking.items() for word in pair), "--", *self.command]

    def run(self) -> CompileResult:
        """Compile."""
        return compile_hosted(self.command, self.host, self.limits, self.running, connection=self.connection)
