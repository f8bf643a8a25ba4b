"""Bytes that a client sends piece by piece, on the disk until they are whole: a client must not fill the memory."""

from collections.abc import AsyncIterable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from policybridge_core.errors import TooLargeError
from policybridge_server.publishing.publication import Publication

_AT_ONCE: Final = 1 << 20
"""Bytes that are written in one go, however small the pieces are."""


class Spool:
    """A file without a name, which is deleted when it is closed. For one thread at a time.

    Args:
        folder: on the file system that has room for it.
        limit: bytes that it takes.

    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115
        self._left = limit
        self._limit = limit
        self._pieces = bytearray()

    async def fill(self, pieces: AsyncIterable[bytes], publication: Publication) -> None:
        """Take all pieces; ``publication`` runs the blocking steps.

        Raises:
            TooLargeError: they are more than the limit.

        """
        async for piece in pieces:
            self._left -= len(piece)
            if self._left < 0:
                raise TooLargeError(
                    f"more than {self._limit} bytes; the operator allows no more (--max-artifact-bytes)"
                )
            self._pieces += piece
            if len(self._pieces) >= _AT_ONCE:
                await publication.run(self._write)

    def _write(self) -> None:
        self._file.write(self._pieces)
        self._pieces.clear()

    def read(self) -> memoryview:
        """Give all bytes, once: a view of the file, so that they take no memory before they are read."""
        self._write()
        self._file.flush()
        if not self._file.tell():
            return memoryview(b"")
        return memoryview(mmap(self._file.fileno(), 0, access=ACCESS_READ))

    def close(self) -> None:
        """Remove them."""
        self._file.close()
