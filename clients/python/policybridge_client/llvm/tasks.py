"""The tasks of LLVM: flags and legal advice. LLVM's tensors are numbers of a fixed size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from policybridge_client.llvm.compilers import Kind
from policybridge_client.llvm.task_table import INLINING, TASKS
from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_serdes import Signature, TensorSpec, Values


@dataclass(frozen=True)
class Task:
    """An optimisation problem, as the host sees it.

    Attributes:
        name: the name on the command line.
        compilers: the kinds of compilers that can ask.
        flags: LLVM's flags without leading dashes; ``{base}`` is replaced by the channel's base.
        legal: returns the bytes for LLVM, or raises `PolicyFailedError` for advice on which LLVM would crash.
        choices: whether the advice is one of a few integers.
        kind: of the decisions, where the plugin ``policybridge-inliner`` asks; empty: LLVM itself asks.

    """

    name: str
    compilers: frozenset[Kind]
    flags: tuple[str, ...]
    legal: Callable[[Values, Values], bytes]
    choices: bool = True
    kind: str = ""


def inline_or_not(_: Values, advice: Values) -> bytes:
    """Return 1 for any value but 0: LLVM treats each of them as "inline" (llvm/lib/Analysis/MLInlineAdvisor.cpp)."""
    raw = advice.tobytes()
    return raw if raw.count(0) == len(raw) else (1).to_bytes(len(raw), "little")


def evictable(observation: Values, advice: Values) -> bytes:
    """Accept a position whose ``mask`` is not 0. The last position means "evict nothing"; it is legal if its mask is 1.

    LLVM crashes on any other position: it dereferences a missing interval
    (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp, tryFindEvictionCandidate).
    """
    raw = advice.tobytes()
    index = int.from_bytes(raw, "little", signed=True)
    if "mask" not in (observation.dtype.names or ()):
        raise PreconditionError("LLVM sends no feature mask, without which no eviction can be checked")
    mask = observation["mask"].reshape(-1)
    if 0 <= index < len(mask) and mask[index]:
        return raw
    legal = ", ".join(map(str, np.flatnonzero(mask)))
    raise PolicyFailedError(f"the policy would evict at position {index}, which LLVM cannot; legal here are {legal}")


def any_priority(_: Values, advice: Values) -> bytes:
    """Accept any number: LLVM only compares priorities."""
    return advice.tobytes()


INLINE: Final = Task(
    "inline",
    INLINING,
    ("-enable-ml-inliner=release", "-inliner-interactive-channel-base={base}"),
    inline_or_not,
)
EVICT: Final = Task(
    "evict",
    frozenset({Kind.CLANG, Kind.CC1, Kind.ZIG, Kind.LLC}),
    ("-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base={base}"),
    evictable,
)
PRIORITY: Final = Task(
    "priority",
    frozenset({Kind.CLANG, Kind.CC1, Kind.ZIG, Kind.LLC}),
    ("-regalloc-enable-priority-advisor=release", "-regalloc-priority-interactive-channel-base={base}"),
    any_priority,
    choices=False,
)


def load_task(name: str) -> Task:
    """Return the task called ``name``.

    Raises:
        NotFoundError: no task has this name; the message lists the known names.

    """
    return cast("Task", TASKS.load(name))


def check_llvm_signature(signature: Signature) -> None:
    """Check that LLVM could have sent this signature (llvm/include/llvm/Analysis/TensorSpec.h).

    Raises:
        InvalidError: a tensor varies in size, or holds texts.

    """
    for spec in (*signature.features.specs, signature.advice):
        _check_fixed(spec)


def _check_fixed(spec: TensorSpec) -> None:
    if spec.type.is_text:
        raise InvalidError(f"{spec.name}: LLVM sends no elements of the type {spec.type.value!r}")
    if not spec.fixed:
        raise InvalidError(f"{spec.name}: LLVM's tensors have a fixed size, and a dimension is 0 or more")
