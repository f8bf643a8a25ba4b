"""Unpacks gzip and deflate in steps of a bounded size."""

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from policybridge_core.errors import InvalidError, TooLargeError

WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
"""By the encodings that are taken: their argument of zlib."""

_IN: Final = 64 << 10
_OUT: Final = 256 << 10


def pieces(packed: bytes | bytearray) -> Iterator[bytes | bytearray]:
    """Give packed bytes in pieces, each for one step of an `Unpacking`."""
    return (packed[start : start + _IN] for start in range(0, len(packed), _IN))


class Unpacking:
    """Unpacks one message step by step, so that a large one does not keep others waiting.

    Args:
        encoding: one of `WINDOW_BITS`.
        packed: the packed message in pieces.
        write: takes the unpacked bytes of each step.
        limit: bytes of the largest message, unpacked.
        what: names the message in errors.

    Attributes:
        size: unpacked bytes so far.

    """

    __slots__ = ("_encoding", "_limit", "_packed", "_rest", "_unpacker", "_what", "_write", "size")

    def __init__(
        self,
        encoding: str,
        packed: Iterator[bytes | bytearray],
        write: Callable[[bytes], object],
        limit: int,
        what: str = "a message",
    ) -> None:
        self.size = 0
        self._unpacker = zlib.decompressobj(WINDOW_BITS[encoding])
        self._encoding = encoding
        self._packed = packed
        self._write = write
        self._limit = limit
        self._what = what
        self._rest: bytes | bytearray = b""

    def step(self) -> int:
        """Unpack at most 256 KiB more; give the number of bytes.

        Raises:
            InvalidError: the message is not of its encoding, is cut off, or something follows it.
            TooLargeError: it has more bytes than the limit.

        """
        if not self._rest:
            self._rest = next(self._packed, b"")
        ended = not self._rest
        try:
            part = self._unpacker.decompress(self._rest, _OUT)
        except zlib.error as error:
            raise InvalidError(f"{self._what} is no {self._encoding}: {error}") from error
        self._rest = self._unpacker.unconsumed_tail
        self._write(part)
        self.size += len(part)
        self._check(ended and not part)
        return len(part)

    def _check(self, ended: bool) -> None:
        if self.size > self._limit:
            raise TooLargeError(f"{self._what} of more than {self._limit} bytes, unpacked")
        if ended and not self._unpacker.eof:
            raise InvalidError(f"{self._what} is no whole {self._encoding}: it is cut off")
        if self._unpacker.eof and (self._unpacker.unused_data or next(self._packed, b"")):
            raise InvalidError(f"{self._what} is not only {self._encoding}: there are bytes after its end")

    @property
    def done(self) -> bool:
        """Whether all is unpacked."""
        return self._unpacker.eof
