"""What LLVM's inliner tells beside the features of a call: its own decision, and remarks that name the functions.

The interactive mode sends features and no names. The remarks have one document for each decision, in the same order, as
YAML in a fixed form (llvm/lib/Analysis/MLInlineAdvisor.cpp, reportContextForRemark). Reading that form line by line is
a hundred times faster than a YAML parser.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.tasks import INLINE, Task
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import ElementType, Signature, TensorSpec, Values

INLINING_DEFAULT: Final = TensorSpec("inlining_default", ElementType.INT64)
"""The decision of LLVM's own heuristic at a call site; it is the last feature if LLVM is told to send it."""

_SENT_FROM: Final = 21
"""Earlier versions write the default over the feature ``callee_basic_block_count`` and always send 0 as the default
(llvm/lib/Analysis/MLInlineAdvisor.cpp: InlineCostFeatureIndex::NumberOfFeatures as its index). Seen in 19 and 20."""

_SIZE_THRESHOLD: Final = 5
"""At -Oz, LLVM inlines calls that cost less than this (OptMinSizeThreshold in llvm/Analysis/InlineCost.h)."""

_PASSES: Final = "^inline-ml$"
"""The passes whose remarks are read, as ``-foptimization-record-passes`` wants them."""

_DOCUMENT: Final = re.compile("^--- ", re.MULTILINE)
_FIELD: Final = re.compile("^(?:  - )?(Name|Function|Callee|ShouldInline): +(.*)$", re.MULTILINE)
_FEATURE: Final = re.compile(r"^  - \w+: +'?(-?\d+)'?$", re.MULTILINE | re.ASCII)
_INLINED: Final = "InliningSuccess"

_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPED: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


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


@dataclass(frozen=True)
class Remark:
    """LLVM's remark on one decision.

    Attributes:
        caller: the function that holds the call.
        callee: the called function.
        inline: whether the advice was to inline.
        inlined: whether LLVM inlined.
        text: the document, which has the features.

    """

    caller: str
    callee: str
    inline: bool
    inlined: bool
    text: str

    @property
    def features(self) -> list[int]:
        """The features' values, in LLVM's order."""
        return [int(value) for value in _FEATURE.findall(self.text)]


def remark_words(kind: Kind, file: Path) -> list[str]:
    """Give the words for a compiler's frontend, or for opt, that make LLVM write the remarks to a file."""
    if kind is Kind.OPT:
        return [f"-pass-remarks-output={file}", f"-pass-remarks-filter={_PASSES}"]
    # The driver's option -fsave-optimization-record would also add line tables to the object.
    return ["-opt-record-file", str(file), "-opt-record-passes", _PASSES]


def remarks_in(file: Path) -> list[Remark]:
    """Give the remarks of a file; none without the file, which a compiler that fails early does not make."""
    return read_remarks(file.read_bytes()) if file.is_file() else []


def read_remarks(data: bytes) -> list[Remark]:
    """Give the remarks of a file; skip documents of another form."""
    return list(_remarks(data.decode("utf-8", "surrogateescape")))


def _remarks(data: str) -> Iterator[Remark]:
    for text in _DOCUMENT.split(data)[1:]:
        fields = dict(_FIELD.findall(text))
        if fields.keys() >= {"Name", "Function", "Callee", "ShouldInline"}:
            yield Remark(
                read_scalar(fields["Function"]),
                read_scalar(fields["Callee"]),
                "true" in fields["ShouldInline"],
                fields["Name"].startswith(_INLINED),
                text,
            )


def read_scalar(word: str) -> str:
    """Give the text of a YAML scalar on one line, with or without quotes."""
    if word.startswith("'"):
        return word[1:-1].replace("''", "'")
    if word.startswith('"'):
        return _ESCAPE.sub(_unescaped, word[1:-1])
    return word


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code < 0x110000 else "�"
    return _ESCAPED.get(escape, escape)


def aligned(
    remarks: Sequence[Remark], taken: Sequence[bool], observations: npt.NDArray[np.float64]
) -> list[Remark | None]:
    """Give the remark of each decision; ``None`` if it has no remark.

    LLVM also remarks on calls of always-inlined functions, for which it asks no decision. Such a remark has the
    features of the decision before it.

    Args:
        remarks: all of the compilation.
        taken: the answers, in order.
        observations: a row for each decision: the features' values, in LLVM's order.

    """
    if [remark.inline for remark in remarks] == list(taken):
        return list(remarks)
    paired: list[Remark | None] = []
    waiting = iter(remarks)
    for answer, observation in zip(taken, observations, strict=True):
        paired.append(next((each for each in waiting if each.inline == answer and _shows(each, observation)), None))
    return paired


def _shows(remark: Remark, observation: npt.NDArray[np.float64]) -> bool:
    shown = remark.features[: len(observation)]
    return bool(np.array_equal(shown, observation[: len(shown)]))
