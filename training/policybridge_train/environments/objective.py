"""What an episode is judged by, at its end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.process import base_in
from policybridge_client.llvm.tasks import Task
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_serdes import Signature, Values
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.environments.compilation import WaitingCompilation

OBJECT, REMARKS = "object.o", "remarks.yaml"
"""Files in a compilation's folder."""

_SOURCE: Final = "static int f(int x) { return x * 3 + 1; }\nint g(int x) { return f(x) + f(x + 7); }\n"


_SILENT: Final = 86_400
"""Seconds that the plugin waits for an action at most; it takes no more."""


@dataclass(frozen=True)
class Setting:
    """A compiler, its limits, and a folder in which plugins are looked for first."""

    compiler: Compiler
    limits: Limits
    plugins: Path | None = None

    def _asking(self, task: Task | None, words: Sequence[str], folder: Path) -> Sequence[str]:
        """Add the plugin, if it asks and not LLVM itself; it speaks LLVM's protocol over the same pipes."""
        if task is None or not task.kind:
            return words
        tool = CompileTool(self.compiler, self.limits, plugins=self.plugins)
        if tool.plugin is None:
            raise PreconditionError(
                lacking(
                    f"{self.compiler.name} needs the plugin policybridge-inliner-{self.compiler.major}.so for the kind "
                    f"{task.kind}; give its folder by plugins, or in POLICYBRIDGE_PLUGINS (docs/plugin.md)"
                )
            )
        options = {
            "server": f"pipe:{base_in(folder)}",
            "policy": task.name,
            "decides": task.kind,
            "fallback": "error",
            "timeout": _SILENT,
        }
        return tool.with_plugin(words, [f"-policybridge-{name}={value}" for name, value in options.items()])

    def compilation(
        self, task: Task | None, module: Module, remarks: Callable[[Path], Sequence[str]]
    ) -> WaitingCompilation:
        """Start the compilation of a module; ``remarks`` gives the arguments of cc1 for a file of remarks."""

        def command(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
            words = compile_command(self.compiler, module, folder / OBJECT)
            return self._asking(task, words, folder), remarks(folder / REMARKS)

        return WaitingCompilation(task, command, self.limits)

    def signature(self, task: Task) -> Signature:
        """Give the signature of a task, as the compiler announces it for a few lines of C.

        Raises:
            InvalidError: it never asks about the task, or does not compile.

        """

        def command(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
            source = folder / "probe.c"
            source.write_text(_SOURCE, encoding="ascii")
            words = ["-cc1", "-Oz", "-emit-obj", "-x", "c", "-o", str(folder / "probe.o"), str(source)]
            return self._asking(task, [*self.compiler.start, *words], folder), ()

        with closing(WaitingCompilation(task, command, self.limits)) as compilation:
            compilation.next()
            if compilation.signature is not None:
                return compilation.signature
            compilation.succeed()
        raise InvalidError(f"{self.compiler.name} asks nothing about the task {task.name!r}")


@dataclass(frozen=True)
class Judgement:
    """A compilation's reward over the compiler's own decisions.

    Attributes:
        reward: above 0 if it is better.
        credit: of each decision, in order; above 0 if its functions are better.
        told: numbers for people, by name.

    """

    reward: float
    credit: Sequence[float]
    told: Mapping[str, float] = field(default_factory=dict)


D = TypeVar("D")


class Objective(Protocol[D]):
    """The objective of an episode; D holds a module's baseline, compiled with the compiler's own decisions."""

    @property
    def task(self) -> Task:
        """The decisions that the compiler asks for."""
        ...

    def remarks(self, file: Path) -> Sequence[str]:
        """Give the arguments of cc1 with which it writes the remarks that `judge` needs to a file."""
        ...

    def actions(self, signature: Signature) -> int:
        """Give the number of actions."""
        ...

    def legal(self, observation: Values) -> npt.NDArray[np.int8]:
        """Give 1 for each action that the compiler can follow, else 0; shape [actions]. One of them is 1."""
        ...

    def by_default(self, setting: Setting, module: Module) -> D:
        """Compile a module with the compiler's own decisions.

        Raises:
            PolicyFailedError: there is no object.
            DeadlineError: it takes too long.
            PreconditionError: this compiler cannot write the remarks.

        """
        ...

    def judge(self, default: D, compilation: WaitingCompilation) -> Judgement:
        """Compare a compilation that has ended well with the compiler's own decisions.

        Raises:
            InvalidError: the object cannot be read.
            OSError: there is none.

        """
        ...
