"""The tasks of LLVM: flags, legal advice and LLVM's own decisions. LLVM's tensors are numbers of a fixed size."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, cast

import numpy as np

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_core.plugins import Table
from policybridge_serdes import ElementType, Signature, TensorSpec, Values

INLINING_DEFAULT: Final = TensorSpec("inlining_default", ElementType.INT64)
"""The decision of LLVM's own heuristic at a call site; it is the last feature if LLVM is told to send it."""

_SENT_FROM: Final = 21
"""Earlier versions write the default over the feature ``callee_basic_block_count`` and always send 0 as the default
(llvm/lib/Analysis/MLInlineAdvisor.cpp: InlineCostFeatureIndex::NumberOfFeatures as its index). Seen in 19 and 20."""

_SIZE_THRESHOLD: Final = 5
"""At -Oz, LLVM inlines calls that cost less than this (OptMinSizeThreshold in llvm/Analysis/InlineCost.h)."""


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

    def check(self, kind: Kind) -> None:
        """Raise `InvalidError` if a compiler of this kind never asks."""
        if kind not in self.compilers:
            known = ", ".join(sorted(kind.value for kind in self.compilers))
            raise InvalidError(f"{kind.value} never asks about the task {self.name!r}; it is asked by {known}")


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
    frozenset({Kind.CLANG, Kind.CC1, Kind.ZIG, Kind.OPT}),
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

TASKS: Final = Table(
    kind="task",
    group="policybridge.tasks",
    own={task.name: f"policybridge_client.llvm.tasks:{task.name.upper()}" for task in (INLINE, EVICT, PRIORITY)},
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


class Defaults:
    """LLVM's own decisions, here unknown: only a run without the policy has them.

    Attributes:
        known: whether LLVM's own decision is known.
        flags: the flags that make LLVM send its decision.

    """

    known = False
    flags: tuple[str, ...] = ()

    def extended(self, signature: Signature) -> Signature:
        """Return LLVM's signature with the default among the features, if it is known: as the policy sees it."""
        return signature

    def completed(self, payload: bytes) -> bytes:
        """Return LLVM's observation with the default added, if it is known."""
        return payload

    def answer(self, observation: Values) -> bytes:
        """Return the reply that has the effect of LLVM's own decision.

        Raises:
            PreconditionError: the decision is not known.

        """
        raise PreconditionError(f"LLVM's own decision is not among the features {observation.dtype.names}")


class SentDefaults(Defaults):
    """LLVM sends its decision as the last feature."""

    known = True
    flags: tuple[str, ...] = ("-inliner-interactive-include-default",)

    def __init__(self) -> None:
        self._answers = False

    def extended(self, signature: Signature) -> Signature:
        """Return the signature unchanged."""
        self._learn(signature)
        return signature

    def _learn(self, signature: Signature) -> None:
        """Learn whether the feature's bytes can be a reply: with another size LLVM would read too few or too many."""
        sent = signature.features.by_name.get(INLINING_DEFAULT.name)
        self._answers = sent is not None and sent.size == signature.advice.size == INLINING_DEFAULT.size

    def answer(self, observation: Values) -> bytes:
        """Return the feature's bytes."""
        return observation[INLINING_DEFAULT.name].tobytes() if self._answers else super().answer(observation)


class ComputedDefaults(SentDefaults):
    """Computes LLVM's decision at -Oz: inline if the cost is below the threshold.

    This was right for 99.98 % of 406,000 decisions of LLVM 22 at -Oz. It is not used at -Os, -O2 and -O3, where LLVM
    adds bonuses: there 1.5, 3 and 14 % of the decisions would be wrong.
    """

    flags = ()

    def __init__(self) -> None:
        super().__init__()
        self._cost = slice(0, 0)

    def extended(self, signature: Signature) -> Signature:
        """Add the default as the last feature."""
        specs = signature.features.specs
        before = list(takewhile(lambda spec: spec.name != "cost_estimate", specs))
        if len(before) == len(specs) or specs[len(before)].size != INLINING_DEFAULT.size:
            raise InvalidError("LLVM sends no feature cost_estimate, from which its default at -Oz could be computed")
        offset = sum(spec.size for spec in before)
        self._cost = slice(offset, offset + INLINING_DEFAULT.size)
        extended = Signature.of([*specs, INLINING_DEFAULT], signature.advice)
        self._learn(extended)
        return extended

    def completed(self, payload: bytes) -> bytes:
        """Append the decision, computed from the feature ``cost_estimate``."""
        cost = int.from_bytes(payload[self._cost], "little", signed=True)
        return payload + int(cost < _SIZE_THRESHOLD).to_bytes(8, "little")


def defaults_of(compiler: CompilerCommand, task: Task, version: int | None = None) -> Defaults:
    """Choose the source of LLVM's own decisions; without a ``version``, the compiler may be started once to read it."""
    if task.name != INLINE.name:
        return Defaults()
    if (llvm_version(compiler.start) if version is None else version) >= _SENT_FROM:
        return SentDefaults()
    return ComputedDefaults() if compiler.size_level else Defaults()
