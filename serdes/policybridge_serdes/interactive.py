r"""LLVM's interactive stream, as a compiler writes it (llvm/lib/Analysis/InteractiveModelRunner.cpp).

    {"features":[spec, …],"advice":spec}\n      once per module; several may follow each other
    {"context":"name"}\n                        a module or function begins
    {"observation":N}\n<packed tensors>\n       answered by the advice tensor's bytes alone

A client of ours whose tensors vary writes ``{"observation":N,"bytes":B}\n``, B the payload's size. LLVM never does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from policybridge_serdes.errors import InvalidError, TooLargeError
from policybridge_serdes.specs import Signature, TensorSpec

MAX_LINE: Final = 1 << 20
"""Longest header or context line taken; LLVM's longest known, the eviction header, has 2 KB."""

DEFAULT_LIMIT: Final = 64 << 20
"""Largest observation taken unless told otherwise, in bytes."""

_OBSERVATION: Final = b'{"observation":'


@dataclass(frozen=True)
class Header:
    """A module's features and advice."""

    signature: Signature


@dataclass(frozen=True)
class Context:
    """The function (or module, then empty) that the following observations belong to."""

    name: str


Event = bytes | Header | Context
"""``bytes``: an observation's payload, in the bitstream's session form."""


class _HeaderJson(msgspec.Struct):
    features: list[object]
    advice: object


class _ContextJson(msgspec.Struct):
    context: str


class _ObservationJson(msgspec.Struct):
    observation: int
    bytes: int | None = None


class InteractiveReader:
    """Cuts what arrives, in pieces of any size, into events; what is incomplete waits for the next piece.

    Args:
        limit: largest observation in bytes; a header that promises more is refused before anything is allocated.

    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = 1
        self._size: int | None = None
        self._fixed = True

    def feed(self, data: bytes) -> list[Event]:
        """Take one piece and give the events that it completes, in order.

        Raises:
            InvalidError: the stream is not LLVM's.
            TooLargeError: a line or an observation exceeds its limit.

        """
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._held = 0
        elif self._size is not None and self._fixed and data.startswith(_OBSERVATION):
            # The hot path: exactly one observation in one piece, which is how LLVM writes it.
            start = data.find(b"\n") + 1
            if start and len(data) == start + self._size + 1 and data[-1] == 10:
                self._check_number(data[:start])
                return [data[start:-1]]
        return list(self._cut(data))

    def _check_number(self, line: bytes) -> None:
        if not (line[15:-2].isdigit() and line.endswith(b"}\n")):
            self._observation_json(line)

    def _cut(self, data: bytes) -> Iterator[Event]:
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1
            if not end:
                if len(data) - start > MAX_LINE:
                    raise TooLargeError(f"a line of LLVM's stream is longer than {MAX_LINE} bytes")
                break
            line = data[start:end]
            if not line.startswith(_OBSERVATION):
                yield self._line(line)
                start = end
                continue
            stop = end + self._payload_size(line)
            if stop >= len(data):
                self._keep(data[start:], stop + 1 - start)
                return
            if data[stop] != 10:
                raise InvalidError(f"an observation of {stop - end} bytes does not end in a newline")
            yield data[end:stop]
            start = stop + 1
        if start < len(data):
            self._keep(data[start:], 1)

    def _keep(self, rest: bytes, needed: int) -> None:
        self._pieces.append(rest)
        self._held = len(rest)
        self._needed = max(needed, self._held + 1)

    def _line(self, line: bytes) -> Event:
        if line.startswith(b'{"context":'):
            return Context(_decode(line, _ContextJson, "a context line").context)
        if line.startswith(b'{"features":'):
            return self._header(line)
        shown = line[:60].decode("utf-8", "backslashreplace").rstrip()
        raise InvalidError(f'not a line of LLVM\'s stream ("features", "context" or "observation"): {shown!r}')

    def _header(self, line: bytes) -> Header:
        header = _decode(line, _HeaderJson, "a header line")
        features = [TensorSpec.from_json(spec) for spec in header.features]
        signature = Signature.of(features, TensorSpec.from_json(header.advice))
        for size in (signature.features.size, signature.advice_layout.size):
            if size > self._limit:
                raise TooLargeError(f"the header promises tensors of {size} bytes; at most {self._limit} are taken")
        self._size, self._fixed = signature.features.size, signature.features.fixed
        return Header(signature)

    def _observation_json(self, line: bytes) -> _ObservationJson:
        return _decode(line, _ObservationJson, "an observation line")

    def _payload_size(self, line: bytes) -> int:
        if self._size is None:
            raise InvalidError("an observation came before the header line with the features")
        said = self._observation_json(line).bytes
        if self._fixed:
            return self._size
        if said is None or not said >= 0:
            raise InvalidError('features vary: observations are announced as {"observation":N,"bytes":B}')
        if said > self._limit:
            raise TooLargeError(f"an observation of {said} bytes; at most {self._limit} are taken")
        return said


_T = TypeVar("_T")


def _decode(line: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{what} of LLVM's stream is malformed: {error}") from error


def header_line(signature: Signature) -> bytes:
    """Write the header line as LLVM does, for clients that are no LLVM."""
    fields = {
        "features": [spec.to_json() for spec in signature.features.specs],
        "advice": signature.advice.to_json(),
    }
    return msgspec.json.encode(fields) + b"\n"


def context_line(name: str) -> bytes:
    """Write the line that begins a context."""
    return msgspec.json.encode({"context": name}) + b"\n"


def observation_lines(number: int, payload: bytes, *, fixed: bool) -> bytes:
    """Write one observation in the bitstream's session form."""
    if fixed:
        return b'{"observation":%d}\n%b\n' % (number, payload)
    return b'{"observation":%d,"bytes":%d}\n%b\n' % (number, len(payload), payload)
