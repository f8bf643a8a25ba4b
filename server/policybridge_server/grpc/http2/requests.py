"""The headers of a request, checked against RFC 9113 (section 8) and gRPC over HTTP/2."""

import re
from collections.abc import Sequence
from typing import Final

STREAM_COST: Final = 4 << 10
"""Bytes that an open call costs besides its headers and messages: the size of its objects."""

_FIELD_COST: Final = 32
"""Bytes that a header costs besides its name and value, as in RFC 9113, section 6.5.2."""

_PSEUDO: Final = frozenset((":method", ":scheme", ":path", ":authority"))
_REQUIRED: Final = (":method", ":scheme", ":path")
_OF_HTTP1: Final = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_NOT_IN_VALUES: Final = re.compile(r"[\0\r\n]")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class RequestHeaders:
    """The headers of one request, and their meaning for gRPC.

    Attributes:
        path: ``/package.Service/Method``.
        is_grpc: whether the request is one of gRPC.
        timeout: the client's time-out in seconds, if any.
        bad_timeout: a ``grpc-timeout`` that cannot be read, otherwise empty.
        encoding: encoding of compressed messages.
        metadata: all headers except those of HTTP/2.
        content_length: the declared bytes of the request, if any.
        fault: why the request is malformed; empty if it is not.
        trailer_fault: why the trailers of a request are malformed.
        cost: bytes that the call costs while it is open.

    """

    __slots__ = (
        "bad_timeout",
        "content_length",
        "cost",
        "encoding",
        "fault",
        "is_grpc",
        "metadata",
        "path",
        "timeout",
        "trailer_fault",
    )

    def __init__(self, headers: Sequence[tuple[str, str]]) -> None:
        pseudo = [header for header in headers if header[0].startswith(":")]
        self.metadata = [header for header in headers if not header[0].startswith(":")]
        values = dict(self.metadata)
        self.path = dict(pseudo).get(":path", "")
        self.is_grpc = values.get("content-type", "").startswith("application/grpc") and (":method", "POST") in pseudo
        self.encoding = values.get("grpc-encoding", "identity")
        self.timeout, self.bad_timeout = _timeout(values.get("grpc-timeout"))
        fault = _field_fault(self.metadata)
        self.fault = fault or _pseudo_fault(headers, pseudo)
        self.trailer_fault = fault or ("trailers with pseudo-headers" if pseudo else "")
        self.content_length = int(values["content-length"]) if "content-length" in values and not fault else None
        self.cost = STREAM_COST + sum(len(name) + len(value) + _FIELD_COST for name, value in headers)


def _timeout(header: str | None) -> tuple[float | None, str]:
    if header is None:
        return None, ""
    match = _TIMEOUT.fullmatch(header)
    return (int(match[1]) * _UNITS[match[2]], "") if match else (None, header)


def _field_fault(fields: Sequence[tuple[str, str]]) -> str:
    lengths = set()
    for name, value in fields:
        if not _NAME.fullmatch(name):
            return f"a header is named {name[:100]!r}"
        if _NOT_IN_VALUES.search(value):
            return f"the header {name} has a line end or a zero byte in its value"
        if name in _OF_HTTP1 or (name == "te" and value.lower() != "trailers"):
            return f"the header {name}: {value[:100]} is of HTTP/1.1"
        if name == "content-length":
            lengths.add(value)
    if len(lengths) > 1 or not all(map(_DIGITS.fullmatch, lengths)):
        return "a content-length that is no number"
    return ""


def _pseudo_fault(headers: Sequence[tuple[str, str]], pseudo: Sequence[tuple[str, str]]) -> str:
    values = dict(pseudo)
    if list(headers[: len(pseudo)]) != list(pseudo):
        return "a pseudo-header after other headers"
    if len(values) != len(pseudo) or not values.keys() <= _PSEUDO:
        return "a pseudo-header that comes twice, or is none of a request"
    if not all(map(values.get, _REQUIRED)):
        return f"a request needs {', '.join(_REQUIRED)}"
    if any(map(_NOT_IN_VALUES.search, values.values())):
        return "a pseudo-header has a line end or a zero byte in its value"
    return ""
