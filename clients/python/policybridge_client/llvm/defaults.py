"""What LLVM's own heuristic would have done: sent by LLVM 21 and later, computed where it can be for earlier ones."""

from itertools import takewhile
from typing import Final, Protocol

from policybridge_client.llvm.compilers import Compiler
from policybridge_client.llvm.tasks import INLINE, INLINING_DEFAULT, Task
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Signature, Values

_SENT_FROM: Final = 21
"""Earlier ones write the default over the feature ``callee_basic_block_count`` and always send 0 in its own place
(llvm/lib/Analysis/MLInlineAdvisor.cpp: InlineCostFeatureIndex::NumberOfFeatures as its index). Seen in 19 and 20."""

_SIZE_THRESHOLD: Final = 5
"""LLVM inlines at -Oz what costs less (OptMinSizeThreshold in llvm/include/llvm/Analysis/InlineCost.h)."""


class Defaults(Protocol):
    """Where LLVM's own decision comes from."""

    @property
    def known(self) -> bool:
        """Whether there is an answer."""
        ...

    @property
    def flags(self) -> tuple[str, ...]:
        """What LLVM must be told."""
        ...

    def extended(self, signature: Signature) -> Signature:
        """Give LLVM's signature with the default among the features, as the policy sees it."""
        ...

    def completed(self, payload: bytes) -> bytes:
        """Give LLVM's observation with the default in it."""
        ...

    def answer(self, observation: Values) -> bytes:
        """Give the bytes that LLVM takes for its own decision."""
        ...


class UnknownDefaults:
    """LLVM decides by itself alone when it is not asked."""

    known = False
    flags: tuple[str, ...] = ()

    def extended(self, signature: Signature) -> Signature:
        """Give the signature as it is."""
        return signature

    def completed(self, payload: bytes) -> bytes:
        """Give the observation as it is."""
        return payload

    def answer(self, observation: Values) -> bytes:
        """Refuse: there is none."""
        raise PreconditionError(f"LLVM's own decision is not among the features {observation.dtype.names}")


class SentDefaults(UnknownDefaults):
    """LLVM sends it as the last feature."""

    known = True
    flags: tuple[str, ...] = ("-inliner-interactive-include-default",)

    def answer(self, observation: Values) -> bytes:
        """Give the feature."""
        return observation[INLINING_DEFAULT.name].tobytes()


class ComputedDefaults(SentDefaults):
    """LLVM would inline what costs less than its threshold for -Oz.

    True for 99.98 % of 406,000 decisions of LLVM 22 at -Oz. At -Os, -O2 and -O3 bonuses come in: 1.5, 3 and 14 %
    of the decisions would be wrong.
    """

    flags = ()

    def __init__(self) -> None:
        self._cost = slice(0, 0)

    def extended(self, signature: Signature) -> Signature:
        """Add the default as the last feature."""
        specs = signature.features.specs
        before = list(takewhile(lambda spec: spec.name != "cost_estimate", specs))
        if len(before) == len(specs):
            raise InvalidError("LLVM sends no feature cost_estimate, from which its default at -Oz could be computed")
        offset = sum(spec.size for spec in before)
        self._cost = slice(offset, offset + INLINING_DEFAULT.size)
        return Signature.of([*specs, INLINING_DEFAULT], signature.advice)

    def completed(self, payload: bytes) -> bytes:
        """Compare the cost, and append what comes of it."""
        cost = int.from_bytes(payload[self._cost], "little", signed=True)
        return payload + int(cost < _SIZE_THRESHOLD).to_bytes(8, "little")


def defaults_of(compiler: Compiler, task: Task) -> Defaults:
    """Find out what is known of LLVM's own decisions; may start the compiler once to ask for its version."""
    if task.name != INLINE.name:
        return UnknownDefaults()
    if llvm_version(compiler.start) >= _SENT_FROM:
        return SentDefaults()
    return ComputedDefaults() if compiler.size_level else UnknownDefaults()
