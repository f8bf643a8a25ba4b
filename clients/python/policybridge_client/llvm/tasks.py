"""What LLVM can be told to ask: the flags that make it, what it may be answered, and what it would do by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from policybridge_client.llvm.compilers import Kind
from policybridge_core.errors import InvalidError, PolicyFailedError
from policybridge_core.plugins import Table
from policybridge_serdes import ElementType, TensorSpec, Values

INLINING_DEFAULT: Final = TensorSpec("inlining_default", ElementType.INT64)
"""What LLVM's own heuristic would do at this call site; the last feature, where LLVM is told to send it."""


@dataclass(frozen=True)
class Task:
    """An optimisation problem, as the host sees it.

    Attributes:
        name: as on the command line.
        compilers: those that can ask.
        flags: LLVM's, without dashes before; ``{base}`` is the channel's.
        legal: gives the bytes for LLVM, or raises `PolicyFailedError` before LLVM sees what it would crash on.
        choices: whether the advice is one of a few integers.

    """

    name: str
    compilers: frozenset[Kind]
    flags: tuple[str, ...]
    legal: Callable[[Values, Values], bytes]
    choices: bool = True

    def check(self, kind: Kind) -> None:
        """Raise `InvalidError` where a compiler of this kind never asks."""
        if kind not in self.compilers:
            known = ", ".join(sorted(kind.value for kind in self.compilers))
            raise InvalidError(f"{kind.value} never asks about the task {self.name!r}; it is asked by {known}")


def inline_or_not(_: Values, advice: Values) -> bytes:
    """Give 1 for any value but 0: LLVM takes any such for "inline" (llvm/lib/Analysis/MLInlineAdvisor.cpp)."""
    raw = advice.tobytes()
    return raw if raw.count(0) == len(raw) else (1).to_bytes(len(raw), "little")


def evictable(observation: Values, advice: Values) -> bytes:
    """Let a position through whose ``mask`` is not 0; the last one, "evict nothing", is among them when it is legal.

    LLVM crashes on any other: it dereferences the interval that is not there
    (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp, tryFindEvictionCandidate).
    """
    raw = advice.tobytes()
    index = int.from_bytes(raw, "little", signed=True)
    mask = observation["mask"].reshape(-1)
    if 0 <= index < len(mask) and mask[index]:
        return raw
    legal = ", ".join(map(str, np.flatnonzero(mask)))
    raise PolicyFailedError(f"the policy would evict at position {index}, which LLVM cannot; legal here are {legal}")


def any_priority(_: Values, advice: Values) -> bytes:
    """Let any number through: LLVM only compares them."""
    return advice.tobytes()


INLINE: Final = Task(
    "inline",
    frozenset({Kind.CLANG, Kind.ZIG, Kind.OPT}),
    ("-enable-ml-inliner=release", "-inliner-interactive-channel-base={base}"),
    inline_or_not,
)
EVICT: Final = Task(
    "evict",
    frozenset({Kind.CLANG, Kind.ZIG, Kind.LLC}),
    ("-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base={base}"),
    evictable,
)
PRIORITY: Final = Task(
    "priority",
    frozenset({Kind.CLANG, Kind.ZIG, Kind.LLC}),
    ("-regalloc-enable-priority-advisor=release", "-regalloc-priority-interactive-channel-base={base}"),
    any_priority,
    choices=False,
)

TASKS: Final = Table(
    kind="task",
    group="policybridge.tasks",
    own={task.name: f"policybridge_client.llvm.tasks:{task.name.upper()}" for task in (INLINE, EVICT, PRIORITY)},
)


def load_task(name: str) -> Task:
    """Give the task called ``name``.

    Raises:
        NotFoundError: there is none; the message lists those that there are.

    """
    return cast("Task", TASKS.load(name))
