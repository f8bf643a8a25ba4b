"""From a request's bytes, which may be malformed, to an observation."""

from collections.abc import Mapping
from typing import cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes.values import Row
from policybridge_server.mlbridge.grpc.config import FeatureConfig
from policybridge_server.mlbridge.grpc.counting import check_counts, message_fields
from policybridge_server.mlbridge.grpc.decoding import LARGE
from policybridge_server.mlbridge.grpc.flattening import Flattener
from policybridge_server.mlbridge.grpc.pieces import Pieces


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
