"""Inlining for size: each call is a decision, and bytes are the reward."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import EzPickle

from policybridge_client.llvm.compilers import Kind
from policybridge_client.llvm.inliner import Remark, aligned, remark_words, remarks_in
from policybridge_client.llvm.tasks import INLINE, Task
from policybridge_serdes import Signature, Values
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.objectives import function_bytes
from policybridge_train.compiling.result import as_utf8
from policybridge_train.environments.compilation import WaitingCompilation
from policybridge_train.environments.environment import CompilingEnvironment
from policybridge_train.environments.objective import OBJECT, REMARKS, Judgement, Setting
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.tasks.inlined import CallSite, Inlined


@dataclass(frozen=True)
class Sizes:
    """The sizes of one compile.

    Attributes:
        text: bytes of the object that are loaded and not written.
        functions: bytes of each function, its part of the unwind tables among them.
        inlined: the functions that took each function in.

    """

    text: int
    functions: Mapping[str, int]
    inlined: Inlined

    def of(self, functions: Iterable[str]) -> float:
        """Give the bytes of those of the functions that the object has."""
        return float(sum(self.functions[name] for name in functions if name in self.functions))


def credit(default: Sizes, made: Sizes, call: CallSite) -> float:
    """Give the bytes that a decision's functions have saved.

    They are the caller, all that the caller was inlined into in either compile, and the callee. 0 where the remarks do
    not name them.
    """
    if not call.caller:
        return 0.0
    functions = default.inlined.above(call.caller) | made.inlined.above(call.caller) | {call.callee}
    return default.of(functions) - made.of(functions)


class SizeObjective:
    """Bytes: the text of the object, and the functions that each decision can change."""

    task: Task = INLINE

    def remarks(self, file: Path) -> Sequence[str]:
        """Give the arguments for LLVM's remarks of its inliner, which name callers and callees."""
        return remark_words(Kind.CC1, file)

    def actions(self, _: Signature) -> int:
        """Give 2: 0 leaves the call, 1 inlines it."""
        return 2

    def legal(self, _: Values) -> npt.NDArray[np.int8]:
        """Allow both."""
        return np.ones(2, np.int8)

    def by_default(self, setting: Setting, module: Module) -> Sizes:
        """Compile with LLVM's own decisions, asking for the names of calls, and plainly for the size of the whole.

        The two objects are nearly always the same, but not where LLVM's machine-learned advisor never inlines and its
        own does (unreachable calls, recursion).
        """
        with closing(setting.compilation(INLINE, module, self.remarks)) as asking:
            asking.finish()
            sizes = _sizes(asking, _calls(asking))
        with closing(setting.compilation(None, module, lambda _: ())) as plain:
            plain.finish()
            return replace(sizes, text=ObjectFile.read(plain.folder / OBJECT).text)

    def judge(self, default: Sizes, compilation: WaitingCompilation) -> Judgement:
        """Give the bytes of text that are saved; a decision's credit is the bytes that its functions have saved."""
        calls = _calls(compilation)
        made = _sizes(compilation, calls)
        told = {"text": made.text, "default_text": default.text}
        return Judgement(float(default.text - made.text), [credit(default, made, call) for call in calls], told)


def _sizes(compilation: WaitingCompilation, calls: Sequence[CallSite]) -> Sizes:
    made = ObjectFile.read(compilation.folder / OBJECT)
    functions = {as_utf8(name): size for name, size in function_bytes(made).items()}
    return Sizes(made.text, functions, Inlined(calls))


def _calls(compilation: WaitingCompilation) -> list[CallSite]:
    """Name the calls that were asked about, by LLVM's remarks."""
    remarks = remarks_in(compilation.folder / REMARKS)
    found = aligned(remarks, [any(answer) for answer in compilation.answers], _rows(compilation))
    return [_call(remark) if remark else CallSite("", "", inlined=False) for remark in found]


def _call(remark: Remark) -> CallSite:
    return CallSite(as_utf8(remark.caller), as_utf8(remark.callee), remark.inlined)


def _rows(compilation: WaitingCompilation) -> npt.NDArray[np.float64]:
    """Give the features of all decisions; shape [decisions, features]."""
    if not compilation.payloads:
        return np.zeros((0, 0))
    table = compilation.table()
    return np.stack([table[name].reshape(-1).astype(np.float64) for name in table.dtype.names or ()], axis=1)


class InlineForSize(CompilingEnvironment[Sizes]):
    """``policybridge/InlineForSize-v0``: 0 leaves a call, 1 inlines it.

    The last step's reward is the text in bytes that the object saves over LLVM's own decisions. Then
    ``info["credit"][n]`` is the bytes that the functions of decision n have saved: its caller, all that the caller was
    inlined into, and its callee; ``text`` and ``default_text`` are the objects' bytes. For the arguments and errors see
    `CompilingEnvironment`.
    """

    def __init__(self, corpus: Path | str, **arguments: Any) -> None:
        EzPickle.__init__(self, corpus, **arguments)
        super().__init__(SizeObjective(), corpus, **arguments)
