"""Details of errors, for programs: a google.rpc.Status beside the status and the message that gRPC has by itself."""

from typing import Final

from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_server.grpc.field_error import FieldError

DOMAIN: Final = "policybridge"

_KEY: Final = "grpc-status-details-bin"
_LONGEST_MESSAGE: Final = 4000
_LONGEST_WITH_DETAILS: Final = 1500
"""Bytes. The message stands in the details twice more, in base64, and clients take 8 KiB of metadata."""


def message_of(error: PolicyBridgeError) -> str:
    """Give the error's message, cut to what clients take."""
    text = str(error)
    if len(text.encode(errors="replace")) <= _LONGEST_MESSAGE:
        return text
    return text.encode(errors="replace")[:_LONGEST_MESSAGE].decode(errors="ignore") + " …"


def metadata_of(error: PolicyBridgeError) -> tuple[tuple[str, bytes], ...]:
    """Give the trailing metadata with the details; none where the message leaves no room for them."""
    message = message_of(error)
    if len(message.encode()) > _LONGEST_WITH_DETAILS:
        return ()
    details = [_packed(error_details_pb2.ErrorInfo(reason=_reason(error), domain=DOMAIN))]
    if isinstance(error, InvalidError):
        field = error.field if isinstance(error, FieldError) else ""
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
        details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    status = status_pb2.Status(code=int(error.status), message=message, details=details)
    return ((_KEY, status.SerializeToString()),)


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _reason(error: PolicyBridgeError) -> str:
    """Give INVALID for InvalidError, POLICY_FAILED for PolicyFailedError, …: the class that our own clients raise."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == PolicyBridgeError.__module__)
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in kind.__name__.removesuffix("Error"))
    return words.lstrip("_").upper()
