"""A connected Unix socket. Every failure is a PolicyBridgeError."""

import select
import socket
import struct
from time import monotonic
from typing import Final

from policybridge_core.errors import DeadlineError, PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_core.lacking import lacking
from policybridge_serdes.interactive import MAX_LINE

_LONGEST: Final = 1e6
"""Longest single wait, in seconds: poll(2) takes at most 2³¹ ms."""

_LONGEST_PATH: Final = 107
"""Bytes of a socket's path, without the zero behind it."""


class Wire:
    """A connection to the server at ``path``.

    A request and its answer are an exchange, with one deadline for all its calls and pieces. The first exchange begins
    with connecting and lasts until `begin_exchange`.

    Args:
        path: the socket's path.
        timeout: limit of each exchange, in seconds.

    Attributes:
        path: as given.

    Raises:
        DeadlineError: an exchange took longer than the timeout.
        UnavailableError: the server cannot be reached, or went away.

    """

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._deadline = monotonic() + timeout
        # Whether this exchange has waited before: then the kernel's time-out is longer than the remaining time.
        self._waited = True
        limit = struct.pack("@ll", *divmod(max(int(timeout * 1e6), 1), 1_000_000))
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._socket.connect(path)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise self._error("reach", error) from error
            raise

    def begin_exchange(self) -> None:
        """Begin the next exchange: its time starts now."""
        self._deadline = monotonic() + self._timeout
        self._waited = False

    def begin_last_exchange(self, seconds: float) -> None:
        """Begin an exchange that lasts at most so long."""
        self._deadline = monotonic() + min(self._timeout, seconds)
        # The kernel's time-out is longer.
        self._waited = True

    def send(self, data: bytes) -> None:
        """Send all bytes. If the server has closed the connection, the next read reports it."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, "send to")
            except (BrokenPipeError, ConnectionResetError):
                # The server has closed. An error line that it sent before can still be read.
                return
            except OSError as error:
                raise self._error("send to", error) from error

    def receive_into(self, buffer: bytearray, got: int = 0) -> int:
        """Fill the buffer behind its first ``got`` bytes.

        Returns:
            The number of bytes in the buffer, fewer than its length if the server closed.

        """
        while got < len(buffer):
            more = self._receive_some(memoryview(buffer)[got:])
            if not more:
                break
            got += more
        return got

    def receive_reply(self, buffer: bytearray) -> int:
        """Fill the buffer as `receive_into`; if the first bytes are those of an error, return them alone.

        The first byte of a reply is 0 if the rest is the advice.
        """
        got = self._receive_some(buffer)
        return self.receive_into(buffer, got) if got and not buffer[0] else got

    def receive(self, size: int) -> bytes:
        """Receive exactly ``size`` bytes."""
        buffer = bytearray(size)
        if self.receive_into(buffer) < size:
            raise self.gone()
        return bytes(buffer)

    def receive_line(self, held: bytes = b"") -> bytes:
        """Receive a line with its newline, and nothing after it; ``held`` is its beginning, received before."""
        # Peek first: the bytes after the line belong to the first reply.
        while b"\n" not in held:
            if len(held) > MAX_LINE:
                raise TooLargeError(f"the server at {self.path} answered a line of more than {MAX_LINE} bytes")
            seen = self._peek()
            held += self.receive(seen.find(b"\n") + 1 or len(seen))
        return held

    def gone(self) -> UnavailableError:
        """Make the error for a server that closed without a reply."""
        return UnavailableError(f"the server at {self.path} went away without an answer")

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        self._socket.close()

    def _receive_some(self, buffer: bytearray | memoryview) -> int:
        # The first wait of an exchange is left to recv and the kernel's time-out, without a system call of its own.
        if self._waited:
            self._wait(select.POLLIN, "hear from")
        self._waited = True
        try:
            return self._socket.recv_into(buffer)
        except OSError as error:
            raise self._error("hear from", error) from error

    def _peek(self) -> bytes:
        self._wait(select.POLLIN, "hear from")
        try:
            seen = self._socket.recv(MAX_LINE, socket.MSG_PEEK)
        except OSError as error:
            raise self._error("hear from", error) from error
        if not seen:
            raise self.gone()
        return seen

    def _wait(self, events: int, what: str) -> None:
        self._waited = True
        poll = select.poll()
        poll.register(self._socket, events)
        left = self._deadline - monotonic()
        # Once the time is over, not even for a byte that is there already: a server that sends one now and then would
        # be waited for endlessly.
        if left <= 0 or not poll.poll(min(left, _LONGEST) * 1000):
            raise self._late(what)

    def _late(self, what: str) -> DeadlineError:
        return DeadlineError(f"could not {what} the server at {self.path} within {self._timeout:g} s")

    def _error(self, what: str, error: OSError) -> PolicyBridgeError:
        if isinstance(error, BlockingIOError):
            return self._late(what)
        told = f"could not {what} the server at {self.path}: {error.strerror or error}"
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            told = lacking(f"{told}; start one (policybridge serve --socket {self.path}), or mend the address")
        elif error.errno is None:
            told += f"; a socket's path has at most {_LONGEST_PATH} bytes: choose a shorter one"
        return UnavailableError(told)
