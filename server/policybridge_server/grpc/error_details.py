"""Details of errors, for programs: a google.rpc.Status beside gRPC's own status and message; the message's encoding."""

import re
from typing import Final
from urllib.parse import quote, unquote

from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.text import without_paths

DOMAIN: Final = "policybridge"

_KEY: Final = "grpc-status-details-bin"
_LONGEST: Final = 7000
"""Bytes of message and details. The details have the message twice, in base64; clients accept 8 KiB of trailers."""

LONGEST: Final = 4000
"""Bytes of a message, encoded. Clients of gRPC's own library take 8 KiB of trailers, and a byte that is not plain ASCII
needs three of them."""

_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that need no escape."""

_CUT: Final = " …"
_CUT_ESCAPE: Final = re.compile("%.?$")


class FieldError(InvalidError):
    """A field of the request cannot be used.

    Args:
        field: the field's path in the message, such as ``inputs[0].shape``.
        message: the fault and the cure.

    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def message_of(error: PolicyBridgeError) -> str:
    """Give the error's message without paths, cut to the size that clients accept."""
    return without_paths(shortened(str(error)))


def metadata_of(error: PolicyBridgeError) -> tuple[tuple[str, bytes], ...]:
    """Give the trailing metadata with the details; none if the message leaves no room for them."""
    message = message_of(error)
    details = [_packed(error_details_pb2.ErrorInfo(reason=_reason(error), domain=DOMAIN))]
    if isinstance(error, InvalidError):
        field = error.field if isinstance(error, FieldError) else ""
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
        details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    status = status_pb2.Status(code=int(error.status), message=message, details=details).SerializeToString()
    if len(percent_encoded(message)) + len(status) * 4 // 3 > _LONGEST:
        return ()
    return ((_KEY, status),)


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _reason(error: PolicyBridgeError) -> str:
    """Give INVALID for InvalidError, POLICY_FAILED for PolicyFailedError, …: the class that our own clients raise."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == PolicyBridgeError.__module__)
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in kind.__name__.removesuffix("Error"))
    return words.lstrip("_").upper()


def percent_encoded(text: str) -> str:
    """Encode a message as HTTP/2 has it (grpc/doc/PROTOCOL-HTTP2.md); a message that is too long is cut."""
    return quote(shortened(text), safe=_PLAIN, errors="replace")


def shortened(text: str) -> str:
    """Return the message, cut if it is too long."""
    # A character needs at least one byte.
    encoded = quote(text[: LONGEST + 1], safe=_PLAIN, errors="replace")
    if len(encoded) <= LONGEST:
        return text
    cut = encoded[: LONGEST - len(quote(_CUT, safe=_PLAIN))]
    return unquote(_CUT_ESCAPE.sub("", cut), errors="ignore") + _CUT
