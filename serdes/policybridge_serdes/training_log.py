r"""LLVM's training log (llvm/lib/Analysis/TrainingLogger.cpp): the observations of a compilation and their rewards.

    {"features":[spec, …],"score":spec,"advice":spec}\n    score and advice may be missing
    {"context":"name"}\n                                   a module or function starts, or continues
    {"observation":N}\n<packed tensors>\n                  N counts from 0 in each context
    {"outcome":N}\n<packed reward>\n                       follows each observation where there is a score

LLVM logs its decision as an additional last feature. The bytes that it writes to an interactive channel are a training
log without score.

LLVM's reader (log_reader.py) knows no ``bool``. A bool is written as an ``int8_t`` of 0 and 1 whose spec has one more
key, ``"bool":true``: LLVM's reader passes over that key, and ours gives a bool back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, BinaryIO, Final, NotRequired

import msgspec
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, TooLargeError
from policybridge_serdes.bitstream import PackedCodec
from policybridge_serdes.checks import decode_json
from policybridge_serdes.interactive import (
    MAX_LINE,
    context_line,
    observation_lines,
    read_context,
    read_observation,
)
from policybridge_serdes.limits import DEFAULT_LIMIT
from policybridge_serdes.specs import ElementType, Layout, SpecFields, TensorSpec, Values
from policybridge_serdes.values import Row, pack, tensor, unpack


class _LoggedSpec(SpecFields):
    bool: NotRequired[bool]


class _HeaderJson(msgspec.Struct, omit_defaults=True):
    features: list[_LoggedSpec]
    score: _LoggedSpec | None = None
    advice: _LoggedSpec | None = None


class _OutcomeJson(msgspec.Struct):
    outcome: int


_HEADER: Final = msgspec.json.Decoder(_HeaderJson)
_OUTCOME: Final = msgspec.json.Decoder(_OutcomeJson)


@dataclass(frozen=True)
class LogHeader:
    """The specs of a log's features, score and advice.

    Raises:
        InvalidError: a tensor varies or holds strings; LLVM's log holds only fixed tensors.

    """

    features: Layout
    score: TensorSpec | None = None
    advice: TensorSpec | None = None

    def __post_init__(self) -> None:
        for spec in (*self.features.specs, self.score, self.advice):
            if spec is not None and not spec.fixed:
                raise InvalidError(f"{spec}: LLVM's training log holds tensors of fixed size alone")

    @classmethod
    def from_line(cls, line: bytes) -> "LogHeader":
        """Read a log's first line.

        Raises:
            InvalidError: the line is not a header.

        """
        fields = decode_json(_HEADER, line, "the header line of a training log")
        features = Layout.of(map(_from_logged, fields.features))
        score, advice = (None if spec is None else _from_logged(spec) for spec in (fields.score, fields.advice))
        return cls(features, score, advice)

    def to_line(self) -> bytes:
        """Write the log's first line."""
        score, advice = (None if spec is None else _to_logged(spec) for spec in (self.score, self.advice))
        features = [_to_logged(spec) for spec in self.features.specs]
        return msgspec.json.encode(_HeaderJson(features, score, advice)) + b"\n"


def _to_logged(spec: TensorSpec) -> _LoggedSpec:
    fields = _LoggedSpec(name=spec.name, type=spec.type.value, port=0, shape=list(spec.shape))
    if spec.type is ElementType.BOOL:
        fields["type"], fields["bool"] = ElementType.INT8.value, True
    return fields


def _from_logged(fields: _LoggedSpec) -> TensorSpec:
    spec = TensorSpec.from_json(fields)
    is_bool = fields.get("bool", False) and spec.type is ElementType.INT8
    return TensorSpec(spec.name, ElementType.BOOL, spec.shape) if is_bool else spec


@dataclass(frozen=True, eq=False)
class LoggedObservation:
    """One observation of a log, with its reward if the log has a score."""

    context: str
    number: int
    layout: Layout
    values: Values
    reward: npt.NDArray[Any] | None

    @cached_property
    def features(self) -> dict[str, npt.NDArray[Any]]:
        """The features by name, as read-only views."""
        return unpack(self.layout, self.values)


class TrainingLogReader:
    """Reads a log piece by piece: iterate over its observations. The caller opens and closes ``file``.

    Args:
        file: a buffered file; error messages count bytes from its position at the start.
        limit: largest accepted observation, in bytes. A header that promises more is refused before any allocation.

    Raises:
        InvalidError: the file is not a training log, or ends too early. It is raised here or while iterating; the
            message names the byte at which the bad line or tensors start.
        TooLargeError: a line or an observation exceeds its limit.

    """

    def __init__(self, file: BinaryIO, limit: int = DEFAULT_LIMIT) -> None:
        self._file = file
        self._begin = self._end = 0
        self._context = ""
        try:
            self.header = self._read_header(limit)
        except PolicyBridgeError as error:
            raise self._located(error) from error
        self._features = PackedCodec(self.header.features)
        self._score = None if self.header.score is None else PackedCodec(Layout((self.header.score,)))

    def __iter__(self) -> Iterator[LoggedObservation]:
        """Yield the observations from the file's position on."""
        try:
            while line := self._line():
                if line.startswith(b'{"context":'):
                    self._context = read_context(line)
                else:
                    yield self._observation(line)
        except PolicyBridgeError as error:
            raise self._located(error) from error

    def _located(self, error: PolicyBridgeError) -> PolicyBridgeError:
        return type(error)(f"training log, byte {self._begin}: {error}")

    def _read_header(self, limit: int) -> LogHeader:
        header = LogHeader.from_line(self._line())
        for size in (header.features.size, header.score.size if header.score else 0):
            if size > limit:
                raise TooLargeError(f"the header promises tensors of {size} bytes; at most {limit} are taken")
        return header

    def _observation(self, line: bytes) -> LoggedObservation:
        number = read_observation(line).observation
        values = self._features.decode(self._tensors(self.header.features.size))
        reward = self._reward(number)
        return LoggedObservation(self._context, number, self.header.features, values, reward)

    def _reward(self, number: int) -> npt.NDArray[Any] | None:
        if self._score is None or self.header.score is None:
            return None
        outcome = decode_json(_OUTCOME, self._line(), f"the outcome of observation {number}").outcome
        if outcome != number:
            raise InvalidError(f"the outcome of observation {outcome} where that of {number} is due")
        return tensor(self.header.score, self._score.decode(self._tensors(self.header.score.size)))

    def _line(self) -> bytes:
        line = self._file.readline(MAX_LINE + 1)
        self._begin, self._end = self._end, self._end + len(line)
        if len(line) > MAX_LINE:
            raise TooLargeError(f"a line is longer than {MAX_LINE} bytes")
        if line and not line.endswith(b"\n"):
            raise InvalidError("the file ends in the middle of a line")
        return line

    def _tensors(self, size: int) -> bytes:
        data = self._file.read(size + 1)
        self._begin, self._end = self._end, self._end + len(data)
        if len(data) <= size:
            raise InvalidError(f"the file ends after {len(data)} of {size + 1} bytes of tensors and their newline")
        if data[size] != 10:
            raise InvalidError(f"{size} bytes of tensors do not end in a newline")
        return data[:size]


class TrainingLogWriter:
    """Writes a log that LLVM's own reader accepts. The caller opens and closes ``file``.

    As a context manager it raises at the end of the block if the last observation has no outcome yet.

    Raises:
        PreconditionError: from any method, if the order is wrong. In a log with a score each observation is followed
            by its outcome; a log without a score has no outcomes.
        InvalidError: from any method, if a value does not fit the header.

    """

    def __init__(self, file: BinaryIO, header: LogHeader) -> None:
        self._file = file
        self._header = header
        self._score = None if header.score is None else Layout((header.score,))
        self._context = ""
        self._counts: dict[str, int] = {}
        self._due: int | None = None
        file.write(header.to_line())

    def __enter__(self) -> "TrainingLogWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._check_nothing_due()

    def context(self, name: str) -> None:
        """Start or continue the context ``name``. When it continues, its observation numbers continue too."""
        self._check_nothing_due()
        self._file.write(context_line(name))
        self._context = name

    def observation(self, row: Row) -> int:
        """Write one observation, a record or its packed bytes; return its number."""
        self._check_nothing_due()
        payload = row if isinstance(row, bytes) else row.tobytes()
        if len(payload) != self._header.features.size:
            raise InvalidError(f"{len(payload)} bytes came where the features take {self._header.features.size}")
        number = self._counts.get(self._context, 0)
        self._file.write(observation_lines(number, payload, fixed=True))
        self._counts[self._context] = number + 1
        self._due = number if self._score else None
        return number

    def outcome(self, reward: npt.ArrayLike) -> None:
        """Write the reward of the previous observation."""
        if self._score is None or self._due is None:
            raise PreconditionError("an outcome follows an observation, in a log with a score, once")
        values = pack(self._score, {self._score.specs[0].name: reward})
        self._file.write(b'{"outcome":%d}\n%b\n' % (self._due, values.tobytes()))
        self._due = None

    def _check_nothing_due(self) -> None:
        if self._due is not None:
            raise PreconditionError(f"the outcome of observation {self._due} is due: the log has a score")
