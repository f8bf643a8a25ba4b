"""From a request's bytes, which may be malformed, to an observation.

Two bytes on the wire can become a message of a hundred bytes in memory. protobuf has no limit for that, and it holds
Python's interpreter lock while it parses. So the messages, strings and fields of a large request are counted before.
"""

from collections.abc import Mapping
from typing import Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.protobuf_fields import varint
from policybridge_serdes.values import Row
from policybridge_server.mlbridge.grpc.config import FeatureConfig
from policybridge_server.mlbridge.grpc.decoding import LARGE
from policybridge_server.mlbridge.grpc.flattening import Flattener
from policybridge_server.mlbridge.grpc.pieces import Pieces

MAX_ROWS: Final = 1 << 20
"""Messages and strings in one request."""

MAX_FIELDS: Final = 1 << 22
"""Fields in one request; a packed vector is one."""

Fields = dict[int, "Fields"]
"""The fields of a message that are messages themselves, by their numbers."""


class Requests:
    """Decodes the requests of one method.

    Args:
        request: their type.
        bind: for a feature, the field that it is made of, and how.
        limit: largest request, and largest feature that padding may make, in bytes.

    Raises:
        InvalidError: ``bind`` does not fit the type.

    """

    def __init__(self, request: type[Message], bind: Mapping[str, str | FeatureConfig], limit: int) -> None:
        descriptor = cast("Descriptor", request.DESCRIPTOR)
        flattener = Flattener(descriptor, bind, limit)
        self.layout = flattener.layout
        self._name = descriptor.full_name
        self._flatten = flattener.flatten
        self._kind = request
        self._pieces = Pieces(request, limit)
        self._messages = message_fields(descriptor)
        self._limit = limit

    def decode(self, data: bytes) -> tuple[Message, Row]:
        """Give the request and its observation.

        Raises:
            InvalidError: the bytes are no request of this type, or a feature cannot be made of it.
            TooLargeError: the request has too many bytes, messages, strings or fields.

        """
        if len(data) > self._limit:
            raise TooLargeError(f"a request of {len(data)} bytes; at most {self._limit} are taken")
        if len(data) >= LARGE:
            check_counts(data, self._messages)
        try:
            message, large = (self._kind.FromString(data), {}) if len(data) < LARGE else self._pieces.parse(data)
            return message, self._flatten(message, large)
        except (DecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f"the request is not a {self._name}: {error}") from error


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
