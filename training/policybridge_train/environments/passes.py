"""Passes of each function for size: a function is a decision, and bytes are the reward."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gymnasium.utils import EzPickle

from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_client.llvm.compilers import Kind
from policybridge_client.llvm.tasks import Task
from policybridge_serdes import Signature, Values
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.objectives import function_bytes
from policybridge_train.compiling.result import as_utf8
from policybridge_train.environments.compilation import WaitingCompilation
from policybridge_train.environments.environment import CompilingEnvironment
from policybridge_train.environments.objective import OBJECT, Judgement, Setting
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.tasks.passes import PassesForSize as Passes

PASSES: Final = Task(
    Passes.name, frozenset({Kind.CLANG, Kind.CC1}), (), lambda _, advice: advice.tobytes(), kind=Passes.advice.name
)


@dataclass(frozen=True)
class Sizes:
    """The bytes of text of an object, and of each of its functions with its part of the unwind tables."""

    text: int
    functions: Mapping[str, int]

    @classmethod
    def of(cls, compilation: WaitingCompilation) -> "Sizes":
        """Read the object of a compilation that has ended."""
        made = ObjectFile.read(compilation.folder / OBJECT)
        return cls(made.text, {as_utf8(name): size for name, size in function_bytes(made).items()})


class PassObjective:
    """Bytes: the text of the object, and the function that each decision is about."""

    task: Task = PASSES

    def remarks(self, _: Path) -> Sequence[str]:
        """Give nothing: the compiler names the function of each decision."""
        return ()

    def actions(self, _: Signature) -> int:
        """Give the number of alternatives for a function."""
        return len(ALTERNATIVES)

    def legal(self, _: Values) -> npt.NDArray[np.int8]:
        """Allow all."""
        return np.ones(len(ALTERNATIVES), np.int8)

    def by_default(self, setting: Setting, module: Module) -> Sizes:
        """Compile with LLVM's own passes."""
        with closing(setting.compilation(None, module, lambda _: ())) as plain:
            plain.finish()
            return Sizes.of(plain)

    def judge(self, default: Sizes, compilation: WaitingCompilation) -> Judgement:
        """Give the bytes of text that are saved; a decision's credit is the bytes that its function has saved."""
        made = Sizes.of(compilation)
        saved = {name: float(size - made.functions.get(name, 0)) for name, size in default.functions.items()}
        told = {"text": made.text, "default_text": default.text}
        credit = [saved.get(context, 0.0) for context in compilation.contexts]
        return Judgement(float(default.text - made.text), credit, told)


class PassesForSize(CompilingEnvironment[Sizes]):
    """``policybridge/PassesForSize-v0``: the action is the number of an alternative for a function's passes; 0: LLVM's.

    Each function is asked about once, where inlining has ended; LLVM decides about inlining. The last step's reward is
    the text in bytes that the object saves over LLVM's own passes. Then ``info["credit"][n]`` is the bytes that the
    function of decision n has saved; ``text`` and ``default_text`` are the objects' bytes. ``plugins`` is the folder of
    the plugin ``policybridge-inliner``, searched before the usual ones. For the other arguments and errors see
    `CompilingEnvironment`.

    Raises:
        PreconditionError: the compiler loads no plugin.

    """

    def __init__(self, corpus: Path | str, **arguments: Any) -> None:
        EzPickle.__init__(self, corpus, **arguments)
        super().__init__(PassObjective(), corpus, **arguments)
