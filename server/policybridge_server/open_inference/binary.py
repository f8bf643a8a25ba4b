"""The binary tensor extension: over HTTP, tensors as bytes after the JSON instead of numbers in it.

The header ``Inference-Header-Content-Length`` gives the length of the JSON. It is followed by the tensors whose inputs
have the parameter ``binary_data_size``, in the order of the inputs.
"""

from collections.abc import Sequence
from typing import Final

from policybridge_core.errors import InvalidError, TooLargeError, UnsupportedError
from policybridge_serdes.limits import LARGE, Buffer
from policybridge_server.grpc.error_details import FieldError

HEADER: Final = "Inference-Header-Content-Length"
MOST_JSON: Final = 1 << 20
"""Bytes. Python makes an object of each number in JSON, so more would hold up other clients."""

_MOST_DIGITS: Final = 18


def split_body(lengths: Sequence[str], body: bytes | bytearray) -> tuple[bytes, memoryview]:
    """Give the JSON of a request, and the bytes after it.

    Args:
        lengths: the values of the header; none if the body is only JSON.
        body: the request's body.

    Raises:
        InvalidError: the header is not a length within the body.
        UnsupportedError: there is no JSON.
        TooLargeError: the JSON is longer than ``MOST_JSON``.

    """
    size = _length(lengths, len(body)) if lengths else len(body)
    if size > MOST_JSON:
        raise too_long(size)
    view = memoryview(body).toreadonly()
    return bytes(view[:size]), view[size:]


def too_long(size: int) -> TooLargeError:
    """Make the error for ``size`` bytes of JSON."""
    return TooLargeError(
        f"{size} bytes of JSON; at most {MOST_JSON} are taken. Send larger tensors in binary (the parameter "
        "`binary_data_size`), or ask over gRPC"
    )


def _length(lengths: Sequence[str], whole: int) -> int:
    text, *more = lengths
    if more or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidError(f"the header {HEADER} is one number, the bytes of JSON; it is {', '.join(lengths)!a:.60}")
    if int(text) > whole:
        raise InvalidError(f"the header {HEADER} says {text} bytes of JSON; the body has {whole}")
    if text == "0":
        raise UnsupportedError(f"a body without JSON is not taken: {HEADER} is 0; describe the inputs in JSON")
    return int(text)


class BinaryInputs:
    """The bytes after the JSON, cut in the order of the inputs."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._place = 0

    def take(self, name: str, size: object) -> Buffer:
        """Give the bytes of the input ``name``, whose parameter ``binary_data_size`` is ``size``.

        Raises:
            InvalidError: it is not a size, or the body is too short.

        """
        field = f"inputs[{name}].parameters.binary_data_size"
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise FieldError(field, f"{name}: binary_data_size is a number of bytes, not {size!a:.60}")
        left = len(self._data) - self._place
        if size > left:
            raise FieldError(field, f"{name}: binary_data_size is {size}; {left} bytes are left after the JSON")
        self._place += size
        data = self._data[self._place - size : self._place]
        # A small view would keep the whole body in memory.
        return data if size > LARGE else bytes(data)

    def check_end(self) -> None:
        """Check that all bytes were given out.

        Raises:
            InvalidError: some are left.

        """
        left = len(self._data) - self._place
        if left:
            raise InvalidError(f"{left} bytes after the JSON belong to no input by its parameter `binary_data_size`")
