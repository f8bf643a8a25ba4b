"""Parsing of a large message in pieces: protobuf holds the interpreter lock while it parses, 40 ms for a MiB."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_core.errors import TooLargeError
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
class _Packed:
    """A repeated field of numbers: the bytes of each in an observation, and whether its size on the wire varies."""

    size: int
    varies: bool

    def bytes_of(self, piece: bytes) -> int:
        return self.size * len(piece.translate(None, _LAST_BYTES)) if self.varies else len(piece)


class Pieces:
    """Parses large messages of one type; between pieces of their packed numbers other threads may run.

    Args:
        kind: the type.
        limit: bytes of the largest observation.

    """

    def __init__(self, kind: type[Message], limit: int) -> None:
        self._kind = kind
        self._limit = limit
        descriptor = cast("Descriptor", kind.DESCRIPTOR)
        numbers = [field for field in descriptor.fields if repeats(field) and field.cpp_type not in _UNPACKED]
        self._packed = {
            field.number: _Packed(element_type(field).dtype.itemsize, field.type not in _FIXED) for field in numbers
        }

    def parse(self, data: bytes) -> Message:
        """Parse a message.

        Raises:
            DecodeError: the bytes are no message of this kind.
            TooLargeError: its packed numbers have more bytes than the limit as an observation.

        """
        message = self._kind()
        parsed = end = size = 0
        try:
            for number, begin, stop in fields(data, 0, len(data)):
                start, end = end, begin if stop is None else stop
                packed = self._packed.get(number)
                if packed is None or end - begin <= _PIECE:
                    continue
                message.MergeFromString(data[parsed:start])
                for piece in _pieces(data, begin, end):
                    size += packed.bytes_of(piece)
                    if size > self._limit:
                        raise TooLargeError(f"an observation of more than {self._limit} bytes")
                    # The parser appends to a repeated field that comes again.
                    message.MergeFromString(_varint(number << 3 | 2) + _varint(len(piece)) + piece)
                parsed = end
        except IndexError:
            pass  # The bytes are cut off; the parser says so.
        message.MergeFromString(data[parsed:])
        return message


def _pieces(data: bytes, start: int, stop: int) -> Iterator[bytes]:
    """Cut packed numbers after one of them: the last byte of a number of varying size has no highest bit."""
    while start < stop:
        end = min(start + _PIECE, stop)
        while end < stop and data[end - 1] >= 128:
            end += 1
        yield data[start:end]
        start = end


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes((*made, number))
