"""The private pair of named pipes over which one compiler process asks."""

import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

_PIECE: Final = 1 << 16
"""What a pipe holds at most, in bytes."""


class Channel(AbstractContextManager["Channel"]):
    """``base.in`` and ``base.out`` in a folder of their own, gone when the channel is closed.

    Both are opened for reading and writing before the compiler starts. So the compiler's open never blocks, ours does
    not either when it never opens them, and it never sees an end of its replies, at which LLVM would spin for ever.
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
        """Give the descriptor that becomes readable when LLVM has written."""
        return self._observations

    def read(self) -> bytes:
        """Give what LLVM has written; to be called when there is something."""
        return os.read(self._observations, _PIECE)

    def reply(self, advice: bytes) -> None:
        """Answer one observation: the advice's bytes and nothing else."""
        os.write(self._replies, advice)

    def __exit__(self, *_: object) -> None:
        os.close(self._replies)
        os.close(self._observations)
        shutil.rmtree(self.folder, ignore_errors=True)
