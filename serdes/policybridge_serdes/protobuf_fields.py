"""Messages, looked at before they are parsed. Clients without gRPC do not import this: it loads protobuf."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_core.session import LONGEST_NAME
from policybridge_serdes.limits import Buffer

_LARGE: Final = 1 << 18
"""Bytes of a message that is looked at before it is parsed. Smaller ones are parsed in some milliseconds anyway."""

_FIELDS: Final = 1 << 14
"""Fields of a large message, those of messages within it included. The packed values of a tensor are one field."""

_ELEMENTS: Final = 1 << 19
"""Numbers of one field. Each becomes an object of its own, and takes a hundred times as long as in packed bytes."""

_LONGEST_TEXT: Final = 64 << 10
"""Bytes of a field of type string in our own messages."""

_NAMES: Final = frozenset(
    ("alias", "aliases", "digest", "id", "model_name", "model_version", "policy", "serdes", "service", "session_id",
     "status", "version")
)  # fmt: skip
"""The fields of type string that are names, in all our messages."""

_OURS: Final = ("policybridge.", "inference", "grpc.")

_VARINT: Final = 0
_LENGTH: Final = 2
_SIZES: Final = {1: 8, 5: 4}
"""Bytes by the wire types of fixed size."""

_WIDTHS: Final = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}
"""Bytes of a packed element; those of the other types vary."""
_WHOLE: Final = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
_LONGEST_VARINT: Final = 10
_LAST_BYTES: Final = bytes(range(128, 256))
"""The bytes that do not end a varint."""


def check_message(kind: Any, data: Buffer, unchecked: int = _LARGE) -> None:
    """Refuse a message of very many small parts, or with long names or texts, before it is parsed.

    To parse the parts takes memory and time out of measure; long names are copied by each error that tells them.

    Args:
        kind: the message's descriptor.
        data: the message, serialized.
        unchecked: bytes; a message that is not larger is not looked at.

    Raises:
        TooLargeError: there are too many parts, or a text is too long.
        InvalidError: the bytes are not a message of this kind, or a name is too long.

    """
    if len(data) > unchecked:
        try:
            _count(kind, data, 0, len(data), 0)
        except IndexError:
            raise InvalidError(f"not a {kind.full_name}: it is cut off") from None


def _count(kind: Any, data: Buffer, start: int, end: int, count: int) -> int:
    for number, begin, stop in fields(data, start, end):
        count += 1
        if count > _FIELDS:
            raise TooLargeError(f"a message of {len(data)} bytes has more than {_FIELDS} fields; send less in one")
        field = kind.fields_by_number.get(number)
        if field is None or stop is None:
            continue
        if field.type in _WHOLE:
            _check_text(kind, field, stop - begin)
            continue
        if field.message_type is not None:
            count = _count(field.message_type, data, begin, stop, count)
        elif _packed(field, data, begin, stop) > _ELEMENTS:
            raise TooLargeError(f"{field.name} has more than {_ELEMENTS} numbers; send them as raw bytes, or fewer")
    return count


def _check_text(kind: Any, field: Any, size: int) -> None:
    if size <= LONGEST_NAME or field.type != FieldDescriptor.TYPE_STRING or not kind.full_name.startswith(_OURS):
        return
    if field.name in _NAMES:
        raise InvalidError(f"{field.name} is a name of at most {LONGEST_NAME} bytes, not {size}")
    if size > _LONGEST_TEXT:
        raise TooLargeError(f"{field.name} is a text of {size} bytes; at most {_LONGEST_TEXT} are taken")


def _packed(field: Any, data: Buffer, start: int, end: int) -> int:
    width = _WIDTHS.get(field.type)
    if not width and (end - start) // _LONGEST_VARINT > _ELEMENTS:
        # To count them takes long, too.
        return end - start
    return (end - start) // width if width else len(bytes(data[start:end]).translate(None, _LAST_BYTES))


def divide(kind: Any, data: Buffer, numbers: Collection[int]) -> tuple[bytes, list[tuple[int, memoryview]]]:
    """Take the fields of some numbers, of type bytes or message, out of a message without a copy of them.

    Args:
        kind: the message's descriptor.
        data: the message, serialized.
        numbers: of the fields.

    Returns:
        the message without these fields, and each of them in their order: its number, and its payload.

    Raises:
        TooLargeError: the message has too many parts, or a text is too long.
        InvalidError: the bytes are not a message of this kind, or a name is too long.

    """
    check_message(kind, data, 0)
    view, at = memoryview(data).toreadonly(), 0
    rest: list[memoryview] = []
    taken: list[tuple[int, memoryview]] = []
    for number, begin, stop in fields(view, 0, len(view)):
        end = begin if stop is None else stop
        if stop is None or number not in numbers:
            rest.append(view[at:end])
        else:
            taken.append((number, view[begin:end]))
        at = end
    if at < len(view):
        raise InvalidError(f"not a {kind.full_name}: it has a group, or a field of an unknown wire type")
    return b"".join(rest), taken


def owned(parts: Sequence[memoryview], size: int) -> Sequence[Buffer]:
    """Give ``parts`` of a message of ``size`` bytes; copies if they are not most of it, which they would keep alive."""
    return parts if 8 * sum(map(len, parts)) >= 7 * size else [bytes(part) for part in parts]


def fields(data: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int | None]]:
    """Walk over the fields of the message that lies in ``data`` from ``start`` to ``end``.

    Each is its number, where its value begins and, of a field with a length, where it ends; else ``None``. The walk
    ends at a group, which none of our messages has. The wire format: https://protobuf.dev/programming-guides/encoding/.

    Raises:
        IndexError: the message is cut off.

    """
    while start < end:
        tag, start = varint(data, start)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH:
            size, start = varint(data, start)
            if start + size > end:
                raise IndexError
            yield number, start, start + size
            start += size
            continue
        if wire == _VARINT:
            _, start = varint(data, start)
        elif wire in _SIZES:
            start += _SIZES[wire]
        else:
            return
        yield number, start, None


def varint(data: Buffer, offset: int) -> tuple[int, int]:
    """Read the number at ``offset``, of at most 11 bytes; give it and the offset after it.

    Raises:
        IndexError: the data end before the number does.

    """
    byte = data[offset]
    offset += 1
    value, shift = byte & 127, 7
    while byte >= 128 and shift < 70:
        byte = data[offset]
        value |= (byte & 127) << shift
        shift += 7
        offset += 1
    return value, offset
