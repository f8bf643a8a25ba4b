r"""The log of the calls that a compilation asked about, in their order.

The plugin writes it (``-policybridge-sites=FILE``): the line ``policybridge-sites 1 DIGEST LEVEL PATH APPLIED OF``, and
a line for each call, with tabs between the words (see `COLUMNS`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.decisions.text import By, Level, checked_level, read_limited, to_bytes, to_text, unquoted
from policybridge_core.errors import InvalidError

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]

COLUMNS: Final = (
    "key", "default", "taken", "inlined", "caller", "origin", "callee", "number", "occurrence", "callee_local",
    "callee_uses", "cost", "threshold", "caller_instructions", "callee_instructions", "callee_blocks",
    "constant_arguments", "arguments", "loop_depth", "location",
)  # fmt: skip
"""The words of a line of the plugin's log."""

_TEXTS: Final = ("caller", "origin", "callee", "location")
_FLAGS: Final = ("default", "taken", "inlined")
_NUMBERS: Final = tuple(name for name in COLUMNS if name not in ("key", *_TEXTS, *_FLAGS))
_NAME: Final = "policybridge-sites"
_KEY: Final = re.compile("[0-9a-f]{16}")
_COUNT: Final = re.compile("[0-9]{1,18}")
_BITS: Final = {"0": False, "1": True}


@dataclass(frozen=True, eq=False)
class SiteLog:
    """The calls that a compilation asked about. Each sequence has one element a call, in the order of the requests.

    Attributes:
        by: the kind of the keys; see `By`.
        digest: digest of the module at the start of the pipeline; ``None`` if unknown.
        level: level of the module's functions.
        path: the module's path.
        applied: the number of the store's decisions that applied.
        of: the number of decisions in the store's section.
        keys: as in the store.
        default: whether LLVM itself would inline.
        taken: whether the decision was to inline.
        inlined: whether LLVM then inlined.
        caller: the function that holds the call when LLVM asks.
        origin: the function that held it at the start; empty if unknown.
        callee: the called function; empty if unknown.
        location: LLVM's location of the call; empty without debug information.
        numbers: further numbers of the calls, by column; NaN for a call without that number.

    """

    by: By
    digest: str | None
    level: Level
    path: str
    applied: int
    of: int
    keys: Sequence[str]
    default: Flags
    taken: Flags
    inlined: Flags
    caller: Sequence[str]
    origin: Sequence[str]
    callee: Sequence[str]
    location: Sequence[str]
    numbers: Mapping[str, Numbers]

    def __len__(self) -> int:
        return len(self.keys)


def read_sites(path: Path | str) -> SiteLog:
    """Read the log that a plugin wrote.

    Raises:
        NotFoundError: there is no such file: the compilation ended before the end of LLVM's pipeline.
        InvalidError: the file cannot be read, is not a log of sites, or was cut off.

    """
    return parse_sites(read_limited(path, "log of sites"), str(path))


def parse_sites(data: bytes, name: str = "the log of sites") -> SiteLog:
    """Read the bytes of a log; ``name`` stands for the file in messages.

    Raises:
        InvalidError: the bytes are not a log of sites, or were cut off; the message has the line.

    """
    try:
        return _parsed(data)
    except InvalidError as error:
        raise InvalidError(f"{name}, {error}") from error


def _parsed(data: bytes) -> SiteLog:
    first, newline, rest = to_text(data).partition("\n")
    if not newline or (rest and not rest.endswith("\n")):
        number = data.count(b"\n") + 1
        raise InvalidError(f"line {number}: the last line has no end, so the log was cut off")
    try:
        digest, level, path, applied, of = _heading(first)
    except InvalidError as error:
        raise InvalidError(f"line 1: {error}") from error
    columns = _columns(rest)
    caller, origin, callee, location = (_names(columns[column]) for column in _TEXTS)
    default, taken, inlined = (_flags(column, columns[column]) for column in _FLAGS)
    return SiteLog(
        "site",
        digest,
        level,
        path,
        applied,
        of,
        _keys(columns["key"]),
        default,
        taken,
        inlined,
        caller,
        origin,
        callee,
        location,
        {column: _numbers(column, columns[column]) for column in _NUMBERS},
    )


def _columns(text: str) -> Mapping[str, Sequence[str]]:
    width = len(COLUMNS)
    lines = text.split("\n")[:-1]
    for number, line in enumerate(lines, 2):
        if line.count("\t") != width - 1:
            count = line.count("\t") + 1
            raise InvalidError(f"line {number}: a call has {width} words with tabs between, not {count}")
    # One split of the whole text is faster than one for each line.
    words = text.replace("\n", "\t").split("\t")[:-1] if lines else []
    return {column: words[place::width] for place, column in enumerate(COLUMNS)}


def _names(words: Sequence[str]) -> Sequence[str]:
    if not any("%" in word for word in words):
        return words
    return [unquoted(to_bytes(word)) for word in words]


def _heading(line: str) -> tuple[str | None, Level, str, int, int]:
    words = line.replace(" ", "\t", 1).split("\t")
    if words[0] != _NAME:
        raise InvalidError(f"a log begins with {_NAME!r}, not with {words[0][:60]!r}")
    if words[1:2] != ["1"]:
        raise InvalidError(f"version {''.join(words[1:2])[:20]!r} of the log is not supported; supported: 1")
    if len(words) != 7:
        raise InvalidError(f"after the version come digest, level, path and two counts, not {len(words) - 2} words")
    _, _, digest, level, path, applied, of = words
    if digest != "-" and not _KEY.fullmatch(digest):
        raise InvalidError(f"a digest is 16 hexadecimal digits, not {digest[:60]!r}")
    if not (_COUNT.fullmatch(applied) and _COUNT.fullmatch(of)):
        raise InvalidError(f"the last two words are counts, not {applied[:20]!r} and {of[:20]!r}")
    known = None if digest == "-" else digest
    return known, checked_level(level), _names([path])[0], int(applied), int(of)


def _keys(words: Sequence[str]) -> Sequence[str]:
    for number, word in enumerate(words, 2):
        if not _KEY.fullmatch(word):
            raise InvalidError(f"line {number}: a key is 16 hexadecimal digits, not {word[:60]!r}")
    return words


def _flags(column: str, words: Sequence[str]) -> Flags:
    try:
        return np.array([_BITS[word] for word in words], dtype=np.bool_)
    except KeyError:
        number, word = next((n, word) for n, word in enumerate(words, 2) if word not in _BITS)
        raise InvalidError(f"line {number}: {column} is 0 or 1, not {word[:60]!r}") from None


def _numbers(column: str, words: Sequence[str]) -> Numbers:
    try:
        return np.fromiter((float(word) if word else math.nan for word in words), np.float64, len(words))
    except ValueError:
        number, word = next((n, word) for n, word in enumerate(words, 2) if not _is_number(word))
        raise InvalidError(f"line {number}: {column} is a number, not {word[:60]!r}") from None


def _is_number(word: str) -> bool:
    try:
        float(word or 0)
    except ValueError:
        return False
    return True
