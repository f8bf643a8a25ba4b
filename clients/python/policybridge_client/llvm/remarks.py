"""LLVM's optimisation remarks of its machine-learned inliner: the functions of each decision.

The interactive mode sends features and no names. The remarks have one document for each decision, in the same order, as
YAML in a fixed form (llvm/lib/Analysis/MLInlineAdvisor.cpp, reportContextForRemark). Reading that form line by line is
a hundred times faster than a YAML parser.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.compilers import Kind

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
