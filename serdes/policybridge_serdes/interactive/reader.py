"""Splits LLVM's interactive stream into events."""

from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.checks import decode_json
from policybridge_serdes.interactive.decoding import (
    DecidedLine,
    check_end,
    read_decided,
    read_form,
    read_outcome,
)
from policybridge_serdes.interactive.events import CHANCE_BYTES, Context, Decided, End, Event, FormWanted, Header
from policybridge_serdes.limits import DEFAULT_LIMITS, MessageLimits
from policybridge_serdes.specs import Layout, Signature, SpecFields, TensorSpec

MAX_LINE: Final = 1 << 20
"""Longest accepted line in bytes, newline included. LLVM's longest known line, the eviction header, has 2 KB."""

_LARGEST_KEPT: Final = 1 << 14
"""Bytes of the longest header whose signature is kept: a client could fill the memory with headers sent once."""

_LONG_LINE: Final = f"a line of LLVM's stream is longer than {MAX_LINE} bytes"
_NEWLINE: Final = 10

_OBSERVATION: Final = b'{"observation":'
_DECIDED: Final = b'{"decided":'


class _HeaderJson(msgspec.Struct):
    features: list[SpecFields]
    advice: SpecFields


class _ContextJson(msgspec.Struct):
    context: str


class ObservationLine(msgspec.Struct):
    """An observation's number and, where tensors vary in size, its payload's size in bytes."""

    observation: int
    bytes: int | None = None


_HEADER: Final = msgspec.json.Decoder(_HeaderJson)
_CONTEXT_LINE: Final = msgspec.json.Decoder(_ContextJson)
_OBSERVATION_LINE: Final = msgspec.json.Decoder(ObservationLine)


def read_header(line: bytes, limits: MessageLimits) -> Signature:
    """Read a header line.

    Raises:
        InvalidError: the line is malformed.
        TooLargeError: it is beyond the limits.

    """
    return (_kept_signature if len(line) <= _LARGEST_KEPT else _signature)(line, limits)


def _signature(line: bytes, limits: MessageLimits) -> Signature:
    header = decode_json(_HEADER, line, "a header line of LLVM's stream")
    limits.check_features(len(header.features))
    signature = Signature(Layout.from_json(header.features), TensorSpec.from_json(header.advice))
    for size in (signature.features.size, signature.advice_layout.size):
        if size > limits.observation_bytes:
            raise TooLargeError(
                f"the header promises tensors of {size} bytes; at most {limits.observation_bytes} are taken"
            )
    return signature


_kept_signature: Final = lru_cache(maxsize=128)(_signature)
"""The same compiler sends the same header in each compilation, and reading it takes as long as twenty decisions."""


def read_context(line: bytes) -> str:
    """Read the name in a context line.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_CONTEXT_LINE, line, "a context line of LLVM's stream").context


def read_observation(line: bytes) -> ObservationLine:
    """Read the line that announces an observation.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_OBSERVATION_LINE, line, "an observation line of LLVM's stream")


class InteractiveReader:
    """Splits a byte stream, received in pieces of any size, into events. Incomplete events wait for the next piece.

    Args:
        limits: limits of the stream. A header beyond them is refused before any allocation.

    """

    def __init__(self, limits: MessageLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._limit = limits.observation_bytes
        self._line_pieces: list[bytes] = []
        self._held = 0
        self._payload: BytesIO | None = None
        self._payload_bytes = 0
        self._size: int | None = None
        self._fixed = True
        self._advice: int | None = None
        self._announced: DecidedLine | None = None

    @property
    def begun(self) -> bool:
        """Whether an event has come in part."""
        return bool(self._line_pieces) or self._payload is not None

    @property
    def held(self) -> int:
        """Bytes of an event that has come in part."""
        return self._held

    @property
    def lacking(self) -> int:
        """Bytes that an observation lacks which has come in part."""
        return 0 if self._payload is None else self._payload_bytes + 1 - self._held

    def feed(self, data: bytes) -> list[Event]:
        """Add one piece; return the events that it completes, in order.

        Raises:
            InvalidError: the stream is not LLVM's.
            TooLargeError: a line or an observation exceeds its limit.

        """
        events = self.read(data)
        return [events] if isinstance(events, bytes) else list(events)

    def read(self, data: bytes) -> bytes | Iterator[Event]:
        """Add one piece; return the observation that it is, or an iterator that parses its events one by one.

        Add the next piece when the iterator has ended.

        Raises:
            InvalidError: the stream is not LLVM's; the iterator raises this too.
            TooLargeError: a line or an observation exceeds its limit; the iterator raises this too.

        """
        if self._payload is not None:
            return self._continue(self._payload, data)
        if self._line_pieces:
            self._line_pieces.append(data)
            self._held += len(data)
            if b"\n" not in data:
                if self._held >= MAX_LINE:
                    raise TooLargeError(_LONG_LINE)
                return iter(())
            data = b"".join(self._line_pieces)
            self._line_pieces.clear()
            self._held = 0
        elif self._size is not None and self._fixed and data.startswith(_OBSERVATION):
            # The hot path: the piece holds exactly one observation, as LLVM writes it.
            start = data.find(b"\n") + 1
            if len(data) == start + self._size + 1 and data[-1] == 10 and _is_plain(data, start):
                return data[start:-1]
        return self._cut(data)

    def _continue(self, payload: BytesIO, data: bytes) -> Iterator[Event]:
        """Add a piece to the begun observation, which grows in one buffer: to join pieces of megabytes takes long."""
        size = min(self.lacking, len(data))
        payload.write(data if size == len(data) else data[:size])
        self._held += size
        if self._held <= self._payload_bytes:
            return
        self._payload, self._held = None, 0
        with payload.getbuffer() as written:
            if written[-1] != _NEWLINE:
                raise InvalidError(_no_newline(self._payload_bytes))
        payload.truncate(self._payload_bytes)
        yield self._event(payload.getvalue())
        yield from self._cut(data[size:])

    def _cut(self, data: bytes) -> Iterator[Event]:
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1
            if (end or len(data) + 1) - start > MAX_LINE:
                raise TooLargeError(_LONG_LINE)
            if not end:
                self._line_pieces.append(data[start:])
                self._held = len(data) - start
                return
            line = data[start:end]
            if line.startswith(_OBSERVATION):
                self._announced = None
                stop = end + self._payload_size(line)
            elif line.startswith(_DECIDED):
                self._announced = read_decided(line)
                stop = end + self._decided_size(self._announced)
            else:
                yield self._line(line)
                start = end
                continue
            if stop >= len(data):
                self._payload, self._payload_bytes = BytesIO(), stop - end
                self._held = self._payload.write(data[end:])
                return
            if data[stop] != _NEWLINE:
                raise InvalidError(_no_newline(stop - end))
            yield self._event(data[end:stop])
            start = stop + 1

    def _event(self, payload: bytes) -> Event:
        announced = self._announced
        if announced is None:
            return payload
        return Decided(announced.decided, announced.nanoseconds, payload, announced.chances)

    def _line(self, line: bytes) -> Event:
        if line.startswith(b'{"context":'):
            return Context(read_context(line))
        if line.startswith(b'{"features":'):
            return self._header(line)
        if line.startswith(b'{"outcome":'):
            return read_outcome(line, self._limits)
        if line.startswith(b'{"form":'):
            return FormWanted(read_form(line))
        if line.startswith(b'{"end":'):
            check_end(line)
            return End()
        shown = line[:60].decode("utf-8", "backslashreplace").rstrip()
        raise InvalidError(f'not a line of LLVM\'s stream ("features", "context" or "observation"): {shown!r}')

    def _header(self, line: bytes) -> Header:
        signature = read_header(line, self._limits)
        self._size, self._fixed = signature.features.size, signature.features.fixed
        self._advice = signature.advice_layout.size if signature.advice.fixed else None
        return Header(signature)

    def _payload_size(self, line: bytes) -> int:
        if self._size is None:
            raise InvalidError("an observation came before the header line with the features")
        said = read_observation(line).bytes
        if self._fixed:
            if said not in (None, self._size):
                raise InvalidError(f"an observation of {said} bytes, where the features take {self._size}")
            return self._size
        if said is None or not said >= 0:
            raise InvalidError('features vary: observations are announced as {"observation":N,"bytes":B}')
        if said > self._limit:
            raise TooLargeError(f"an observation of {said} bytes; at most {self._limit} are taken")
        return said

    def _decided_size(self, line: DecidedLine) -> int:
        if self._size is None:
            raise InvalidError("decisions came before the header line with the features")
        if self._advice is None or not self._fixed:
            raise InvalidError("a client decides by itself on features and an advice of fixed size alone")
        size = line.decided * (self._size + self._advice + (CHANCE_BYTES if line.chances else 0))
        if size > self._limit:
            raise TooLargeError(f"decisions of {size} bytes in one message; at most {self._limit} are taken")
        return size


def _is_plain(data: bytes, end: int) -> bool:
    # Exactly {"observation":N} as LLVM writes it: then the JSON parser is not needed.
    return 0 < end < 40 and data[15 : end - 2].isdigit() and data[end - 2] == 125


def _no_newline(size: int) -> str:
    return f"an observation of {size} bytes does not end in a newline"
