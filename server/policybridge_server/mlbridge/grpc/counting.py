"""Counts the messages, strings and fields of a large request before protobuf parses it.

Two bytes on the wire can become a message of a hundred bytes in memory. protobuf has no limit for that, and it holds
Python's interpreter lock while it parses.
"""

from typing import Final

from google.protobuf.descriptor import Descriptor

from policybridge_core.errors import TooLargeError
from policybridge_serdes.protobuf_fields import varint

MAX_ROWS: Final = 1 << 20
"""Messages and strings in one request."""

MAX_FIELDS: Final = 1 << 22
"""Fields in one request; a packed vector is one."""

Fields = dict[int, "Fields"]
"""The fields of a message that are messages themselves, by their numbers."""


def message_fields(message: Descriptor, known: dict[str, Fields] | None = None) -> Fields:
    """Give the message fields of ``message``, of those in turn, and so on."""
    known = {} if known is None else known
    fields = known.get(message.full_name)
    if fields is None:
        fields = known[message.full_name] = {}
        for field in message.fields:
            if field.message_type is not None:
                fields[field.number] = message_fields(field.message_type, known)
    return fields


def check_counts(data: bytes, fields: Fields) -> None:
    """Check that a request is not too large to parse; malformed bytes are left to the parser.

    Raises:
        TooLargeError: there are too many messages, strings or fields.

    """
    try:
        _count(data, fields)
    except IndexError:
        return


def _count(data: bytes, fields: Fields) -> None:
    rows = total = 0
    waiting = [(0, len(data), fields)]
    while waiting:
        place, end, fields = waiting.pop()
        while place < end:
            tag, place = varint(data, place)
            total += 1
            wire = tag & 7
            if wire == 2:
                size, place = varint(data, place)
                rows += 1
                inner = fields.get(tag >> 3)
                if inner is not None and size:
                    waiting.append((place, min(place + size, end), inner))
                place += size
            elif wire == 0:
                _, place = varint(data, place)
            elif wire in (3, 4):
                rows += 1
            else:
                place += 8 if wire == 1 else 4
            if rows > MAX_ROWS or total > MAX_FIELDS:
                raise TooLargeError(
                    f"a request of more than {MAX_ROWS} messages and strings, or {MAX_FIELDS} fields; "
                    "send numbers as packed repeated fields"
                )
