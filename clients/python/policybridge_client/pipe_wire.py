"""The compiler's ends of ML-Compiler-Bridge's two FIFOs. Every failure is a PolicyBridgeError."""

import errno
import os
import select
import time
from typing import Final

from policybridge_core.errors import DeadlineError, PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes.limits import DEFAULT_LIMIT

_LENGTH: Final = 8
_PAUSE: Final = 0.002
_READ: Final = 1 << 18


class _GoneError(UnavailableError):
    """The other side has closed its ends."""


class PipeWire:
    """Opens ``BASE.in``, then ``BASE.out``, as ML-Compiler-Bridge's compilers do. The model's side makes both FIFOs.

    Args:
        base: the common start of the FIFOs' paths.
        timeout: limit of each wait for the other side, in seconds.

    Raises:
        DeadlineError: a wait took longer than the timeout.
        UnavailableError: the FIFOs cannot be opened, or the other side went away.

    """

    def __init__(self, base: str, timeout: float) -> None:
        self._base = base
        self._timeout = timeout
        self._is_answered = False
        self._open_both(time.monotonic() + timeout)

    def _open_both(self, deadline: float) -> None:
        self._answers = self._open(".in", os.O_RDONLY, deadline)
        try:
            self._questions = self._open(".out", os.O_WRONLY, deadline)
        except PolicyBridgeError:
            os.close(self._answers)
            raise
        self._is_open = True

    def _open(self, which: str, access: int, deadline: float) -> int:
        while True:
            try:
                return os.open(self._base + which, access | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in (errno.ENXIO, errno.ENOENT):
                    raise UnavailableError(f"cannot open the FIFO {self._base}{which}: {error.strerror}") from error
                if time.monotonic() >= deadline:
                    raise UnavailableError(
                        f"no model serves the FIFO {self._base}{which} within {self._timeout:g} s: {error.strerror}"
                    ) from error
            # Poll: the system reports no event when the other end is opened.
            time.sleep(_PAUSE)

    def exchange(self, message: bytes) -> bytes:
        """Send a message; return the response.

        A model that goes away before its first answer has the timeout to come back, and gets the message again.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._exchange(message, deadline)
            except _GoneError:
                if self._is_answered or time.monotonic() >= deadline:
                    raise
            # The ends were those of the compilation before, which the model had not closed yet.
            self.close()
            time.sleep(_PAUSE)
            self._open_both(deadline)

    def _exchange(self, message: bytes, deadline: float) -> bytes:
        self._send(len(message).to_bytes(_LENGTH, "little") + message, deadline)
        size = int.from_bytes(self._receive(_LENGTH, deadline), "little")
        if size > DEFAULT_LIMIT:
            raise TooLargeError(f"{self._base}.in announces {size} bytes; at most {DEFAULT_LIMIT} are taken")
        return self._receive(size, deadline)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._questions, view) :]
            except BlockingIOError:
                self._wait(self._questions, select.POLLOUT, deadline)
            except OSError as error:
                raise self._gone() from error

    def _receive(self, size: int, deadline: float) -> bytes:
        pieces: list[bytes] = []
        while size:
            try:
                piece = os.read(self._answers, min(size, _READ))
            except BlockingIOError:
                self._wait(self._answers, select.POLLIN, deadline)
                continue
            if not piece:
                raise self._gone()
            self._is_answered = True
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _wait(self, descriptor: int, events: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, events)
        left = deadline - time.monotonic()
        # Fail at the deadline even if a byte is ready: a peer that writes one byte now and then could hold us for ever.
        if left <= 0 or not poll.poll(left * 1000):
            raise DeadlineError(f"no answer came through {self._base}.in within {self._timeout:g} s")

    def _gone(self) -> "_GoneError":
        return _GoneError(f"the model behind {self._base} went away without an answer")

    def close(self) -> None:
        """Close both FIFOs. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self._questions)
            os.close(self._answers)
