"""Parsing of a large message in pieces: protobuf holds the interpreter lock while it parses, 40 ms for a MiB."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.protobuf_fields import fields
from policybridge_server.mlbridge.grpc.columns import element_type, repeats

_UNPACKED: Final = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)
_FIXED: Final = (
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
)

_PIECE: Final = 1 << 16
"""Bytes of packed numbers that are parsed at once; a multiple of the size of every number of fixed size."""

_LAST_BYTES: Final = bytes(range(128, 256))
"""The bytes that do not end a number of varying size."""


@dataclass(frozen=True)
class _Field:
    """A repeated field of numbers: its name, the element type, and whether the size of a number on the wire varies."""

    name: str
    dtype: np.dtype[Any]
    varies: bool

    def count(self, piece: bytes) -> int:
        return len(piece.translate(None, _LAST_BYTES)) if self.varies else len(piece) // self.dtype.itemsize

    def pieces(self, data: bytes, start: int, stop: int) -> Iterator[bytes]:
        """Cut packed numbers after one of them: the last byte of a number of varying size has no highest bit."""
        while start < stop:
            end = min(start + _PIECE, stop)
            while self.varies and end < stop and data[end - 1] >= 128:
                end += 1
            yield data[start:end]
            start = end


class _Numbers:
    """The numbers of one field, in their order.

    Args:
        field: the field.
        most: how many there may be.

    """

    def __init__(self, field: _Field, most: int) -> None:
        self.name = field.name
        self._numbers = np.empty(most, field.dtype)
        self._size = 0

    @property
    def array(self) -> npt.NDArray[Any]:
        return self._numbers[: self._size]

    def move(self, message: Message) -> None:
        """Take the numbers out of ``message``."""
        values = getattr(message, self.name)
        end = self._size + len(values)
        self._numbers[self._size : end] = values
        self._size = end
        message.ClearField(self.name)


class Pieces:
    """Parses large messages of one type; between pieces of their packed numbers other threads may run.

    The numbers go into arrays piece by piece: in a message they would take twice their bytes, beside the array.

    Args:
        kind: the type.
        limit: bytes of the largest observation.

    """

    def __init__(self, kind: type[Message], limit: int) -> None:
        self._kind = kind
        self._limit = limit
        descriptor = cast("Descriptor", kind.DESCRIPTOR)
        numbers = [field for field in descriptor.fields if repeats(field) and field.cpp_type not in _UNPACKED]
        self._fields = {
            field.number: _Field(field.name, element_type(field).dtype, field.type not in _FIXED) for field in numbers
        }

    def parse(self, data: bytes) -> tuple[Message, dict[str, npt.NDArray[Any]]]:
        """Parse a message.

        Returns:
            The message, which has only the first number of each large field, and the large fields' numbers by name.

        Raises:
            DecodeError: the bytes are no message of this kind.
            InvalidError: it has a group.
            TooLargeError: its packed numbers have more bytes than the limit as an observation.

        """
        counts, spans = self._look(data)
        large = {number: _Numbers(self._fields[number], counts[number]) for number, *_ in spans}
        message, parsed = self._kind(), 0
        for number, start, begin, end in spans:
            message.MergeFromString(data[parsed:start])
            large[number].move(message)
            for piece in self._fields[number].pieces(data, begin, end):
                part = self._kind()
                part.MergeFromString(_varint(number << 3 | 2) + _varint(len(piece)) + piece)
                large[number].move(part)
            parsed = end
        message.MergeFromString(data[parsed:])
        for numbers in large.values():
            numbers.move(message)
            # Conditions ask whether a field is empty.
            getattr(message, numbers.name).extend(numbers.array[:1].tolist())
        return message, {numbers.name: numbers.array for numbers in large.values()}

    def _look(self, data: bytes) -> tuple[Mapping[int, int], list[tuple[int, int, int, int]]]:
        """Count the numbers of each field, and find the large parts: their field, start, first number and end."""
        counts: dict[int, int] = defaultdict(int)
        spans = []
        end = 0
        with suppress(IndexError):  # The bytes are cut off; the parser says so.
            for number, begin, stop in fields(data, 0, len(data)):
                start, end = end, begin if stop is None else stop
                field = self._fields.get(number)
                if field is None:
                    continue
                counts[number] += 1 if stop is None else sum(map(field.count, field.pieces(data, begin, end)))
                if end - begin > _PIECE:
                    spans.append((number, start, begin, end))
            if end < len(data):
                raise InvalidError("a large request with a group, or a field of an unknown wire type")
        large = {number for number, *_ in spans}
        if sum(counts[number] * self._fields[number].dtype.itemsize for number in large) > self._limit:
            raise TooLargeError(f"an observation of more than {self._limit} bytes")
        return counts, spans


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes((*made, number))
