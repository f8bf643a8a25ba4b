"""Messages preceded by their lengths: 8 bytes, little endian, in both directions."""

from collections.abc import Iterator
from typing import Final

from policybridge_core.errors import TooLargeError

_LENGTH: Final = 8


def frame(message: bytes) -> bytes:
    """Put the length before a message."""
    return len(message).to_bytes(_LENGTH, "little") + message


class FrameReader:
    """Cuts pieces of any size into messages; an incomplete message waits for the next piece.

    The bytes of a message above the limit are dropped as they arrive. After the last byte, an error takes the
    message's place, so that the compiler gets a reply to it.

    Args:
        limit: largest message in bytes.

    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = _LENGTH
        self._dropping = 0
        self._refusal = TooLargeError("")

    @property
    def begun(self) -> bool:
        """Whether a part of a message has arrived."""
        return bool(self._held or self._dropping)

    def feed(self, data: bytes) -> list[bytes | TooLargeError]:
        """Take one piece and give the messages that it completes, in order."""
        if not self._held and not self._dropping and len(data) > _LENGTH:
            size = int.from_bytes(data[:_LENGTH], "little")
            if len(data) == _LENGTH + size <= self._limit:
                return [data[_LENGTH:]]
        return list(self._cut(data))

    def _cut(self, data: bytes) -> Iterator[bytes | TooLargeError]:
        if self._dropping:
            dropped = min(self._dropping, len(data))
            self._dropping -= dropped
            if self._dropping:
                return
            yield self._refusal
            data = data[dropped:]
        if self._held + len(data) < self._needed:
            self._keep(data, self._needed)
            return
        data = b"".join([*self._pieces, data])
        self._pieces.clear()
        self._held = 0
        start = 0
        while len(data) - start >= _LENGTH:
            size = int.from_bytes(data[start : start + _LENGTH], "little")
            end = start + _LENGTH + size
            if size > self._limit:
                self._refusal = TooLargeError(f"a message of {size} bytes; at most {self._limit} are taken")
                if end > len(data):
                    self._needed, self._dropping = _LENGTH, end - len(data)
                    return
                yield self._refusal
            elif end > len(data):
                self._keep(data[start:], end - start)
                return
            else:
                yield data[start + _LENGTH : end]
            start = end
        self._needed = _LENGTH
        self._keep(data[start:], _LENGTH)

    def _keep(self, rest: bytes, needed: int) -> None:
        if rest:
            self._pieces.append(rest)
        self._held += len(rest)
        self._needed = needed
