"""The decision of LLVM's own heuristic: LLVM 21 and later send it; for earlier ones it is computed at -Oz."""

from itertools import takewhile
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.tasks import INLINE, INLINING_DEFAULT, Task
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Signature, Values

_SENT_FROM: Final = 21
"""Earlier versions write the default over the feature ``callee_basic_block_count`` and always send 0 as the default
(llvm/lib/Analysis/MLInlineAdvisor.cpp: InlineCostFeatureIndex::NumberOfFeatures as its index). Seen in 19 and 20."""

_SIZE_THRESHOLD: Final = 5
"""At -Oz, LLVM inlines calls that cost less than this (OptMinSizeThreshold in llvm/Analysis/InlineCost.h)."""


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


def defaults_of(compiler: CompilerCommand, task: Task) -> Defaults:
    """Choose the source of LLVM's own decisions. This may start the compiler once to read its version."""
    if task.name != INLINE.name:
        return Defaults()
    if llvm_version(compiler.start) >= _SENT_FROM:
        return SentDefaults()
    return ComputedDefaults() if compiler.size_level else Defaults()
