"""The private pair of named pipes between the host and one compiler process."""

import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

_PIECE: Final = 1 << 16
"""Capacity of a pipe, in bytes."""


class Channel(AbstractContextManager["Channel"]):
    """``base.in`` and ``base.out`` in a folder of their own, which is removed when the channel is closed.

    The host opens both pipes for reading and writing before the compiler starts. So no open can block, even if the
    compiler never opens its ends, and the compiler never reads an end of file, after which LLVM would loop forever.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="policybridge-"))
        self.base = str(self.folder / "llvm")
        self._replies = self._pipe(".in")
        self._observations = self._pipe(".out")

    def _pipe(self, end: str) -> int:
        os.mkfifo(self.base + end, 0o600)
        return os.open(self.base + end, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when LLVM has written."""
        return self._observations

    def read(self) -> bytes:
        """Read what LLVM has written; call it when the descriptor is readable."""
        return os.read(self._observations, _PIECE)

    def reply(self, advice: bytes) -> None:
        """Send the advice's bytes, the whole reply to one observation."""
        os.write(self._replies, advice)

    def __exit__(self, *_: object) -> None:
        os.close(self._replies)
        os.close(self._observations)
        shutil.rmtree(self.folder, ignore_errors=True)
