"""Inlining for size: a policy decides about each call, and a function's bytes are its cost.

The plugin ``policybridge-inliner`` asks (docs/plugin.md): it tells the caller of each call, without which no decision
could be credited with what became of its function.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_client.llvm.tasks import INLINING_DEFAULT
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Compiled, Limits, compile_by
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.options import newest_compiler
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.objects.unwinding import function_bytes
from policybridge_train.processes.pool import Running
from policybridge_train.tasks.task import Asking, Case, Ran, names_in_hex

NUMBERS: Final = (
    "sroa_savings", "sroa_losses", "load_elimination", "call_penalty", "call_argument_setup",
    "load_relative_intrinsic", "lowered_call_arg_setup", "indirect_call_penalty", "jump_table_penalty",
    "case_cluster_penalty", "switch_default_dest_penalty", "switch_penalty", "unsimplified_common_instructions",
    "num_loops", "dead_blocks", "simplified_instructions", "constant_args", "constant_offset_ptr_args",
    "callsite_cost", "cold_cc_penalty", "last_call_to_static_bonus", "is_multiple_blocks", "nested_inlines",
    "nested_inline_cost_estimate", "threshold", "callee_basic_block_count", "callsite_height", "node_count",
    "nr_ctant_params", "cost_estimate", "edge_count", "caller_users", "caller_conditionally_executed_blocks",
    "caller_basic_block_count", "callee_conditionally_executed_blocks", "callee_users", "is_callee_avail_external",
    "is_caller_avail_external",
)  # fmt: skip
"""LLVM's features of a call (llvm/include/llvm/Analysis/InlineModelFeatureMaps.h), in its order."""

TOLD: Final = (
    "callee_local", "callee_discardable", "caller_discardable", "callee_instructions", "caller_instructions",
)  # fmt: skip
"""What the plugin alone tells (docs/plugin.md)."""


class InlineForSize:
    """Inlining of a corpus' modules, at the level that each was recorded with.

    Args:
        compiler: a clang's name or path; by default the newest that is found.
        plugins: the folder of the plugin; by default where it is installed, or POLICYBRIDGE_PLUGINS says.
        seconds: limit of one compilation.
        memory: limit of one compilation, in MiB.

    Raises:
        NotFoundError: there is no such compiler, or no plugin that it loads.
        InvalidError: a limit is no number.

    """

    name = "inline"
    features = tuple(TensorSpec(name, ElementType.INT64) for name in (*NUMBERS, INLINING_DEFAULT.name, *TOLD))
    advice = TensorSpec("inlining_decision", ElementType.INT64)
    default = INLINING_DEFAULT.name

    def __init__(
        self, compiler: str = "", plugins: str = "", seconds: str = f"{Limits().seconds:g}", memory: str = "8192"
    ) -> None:
        self.compiler = Compiler.find(compiler) if compiler else newest_compiler()
        found = find_plugin(CompilerCommand.of([*self.compiler.start, "-cc1"]), Path(plugins) if plugins else None)
        if found is None:
            raise NotFoundError(
                f"there is no policybridge-inliner-{self.compiler.major}.so that {self.compiler.name} loads; give its "
                "folder by plugins=DIR, or in POLICYBRIDGE_PLUGINS (docs/plugin.md)"
            )
        self.plugin = found
        self.limits = Limits.read(seconds, memory)
        self.running = Running()
        self._modules: dict[str, Module] = {}

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the modules; see `Task`."""
        if corpus is None:
            raise InvalidError("inlining is trained on a corpus: give --corpus DIR (policybridge corpus makes one)")
        return [self.know(module) for module in Corpus.open(corpus).modules]

    def know(self, module: Module) -> Case:
        """Give the case of a module, which can be run from now on."""
        self._modules[module.name] = module
        return Case(module.name, module.project, module.language)

    def module(self, case: Case) -> Module:
        """Give the module that is compiled for a case."""
        return self._modules[case.name]

    def modules_of(self, case: Case) -> Sequence[Module] | None:
        """Give the module of a case; see `policybridge_train.tasks.recipe.OfModules`."""
        return [self._modules[case.name]] if case.name in self._modules else []

    def run(self, case: Case, asking: Asking | None) -> Ran:
        """Compile a module by the policy, or by LLVM's own decisions; see `Task`."""
        with TemporaryDirectory(prefix="policybridge-train-") as name:
            folder = Path(name)
            command = CompilerCommand.of(self.compiler.command(self.module(case), folder / "object"))
            done = self.compile_asking(command, folder, asking)
            if not done.ok:
                return Ran(failure=f"{done.status.value}: {done.message}")
            return _ran(ObjectFile.read(folder / "object"), folder / "statistics")

    def compile_asking(self, command: CompilerCommand, folder: Path, asking: Asking | None) -> Compiled:
        """Run a compiler that asks; see `compile_by`. ``folder`` gets the file of `sessions_of`, ``statistics``."""
        if asking is None:
            return compile_by([*command.start, *command.arguments], self.limits, running=self.running)
        options = [f"-policybridge-{option}={value}" for option, value in self._options(asking, folder)]
        words = command.with_plugin(str(self.plugin), options, early=self._loads_early)
        # A compiler cache would keep objects that depend on chance.
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        return compile_by(words, self.limits, environment, running=self.running)

    def end(self) -> None:
        """End all compilers; see `Task`."""
        self.running.end()

    @cached_property
    def _loads_early(self) -> bool:
        return loads_early(CompilerCommand.of([*self.compiler.start, "-cc1"]))

    def _options(self, asking: Asking, folder: Path) -> Sequence[tuple[str, str]]:
        options = [
            ("server", asking.server),
            ("policy", asking.policy),
            ("fallback", "error"),
            ("retry-after", "0"),
            ("stats", str(folder / "statistics")),
            *(("label", f"{name}={value}") for name, value in asking.labels.items()),
        ]
        if asking.exploration is not None:
            options.append(("explore", ",".join(f"{name}={value}" for name, value in vars(asking.exploration).items())))
        return options

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002 - of `Task`
        """Give the function that holds each call; see `Task`."""
        return names_in_hex(observations, "caller")


class _Sessions(msgspec.Struct):
    """Of the plugin's statistics file, what is used."""

    sessions: list[str] = []


def unit_of(function: str) -> str:
    """Give a function's unit: in hex, what the plugin sends as its name (docs/plugin.md)."""
    return hashlib.sha256(function.encode(errors="surrogateescape")).hexdigest()[:16]


def function_costs(made: ObjectFile) -> Mapping[str, float]:
    """Give the bytes of each function by its unit: its code, and its part of the unwind and exception tables."""
    return {unit_of(name): size for name, size in function_bytes(made).items()}


def sessions_of(statistics: Path) -> Sequence[str]:
    """Give the ids of a compilation's sessions, from the plugin's statistics."""
    try:
        return msgspec.json.decode(statistics.read_bytes(), type=_Sessions).sessions
    except FileNotFoundError:
        # A module that asks nothing has no session, and no file where nothing was asked.
        return []


def _ran(made: ObjectFile, statistics: Path) -> Ran:
    return Ran(function_costs(made), sessions_of(statistics), {"text": made.text, "exec": made.exec})
