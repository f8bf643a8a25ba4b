"""A connected Unix socket. Every failure is a PolicyBridgeError."""

import socket
import struct

from policybridge_core.errors import DeadlineError, PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes.interactive import MAX_LINE


class Wire:
    """A connection to the server at ``path``.

    Args:
        path: the socket's path.
        timeout: limit of each wait for the server, in seconds.

    Raises:
        DeadlineError: a wait took longer than the timeout.
        UnavailableError: the server cannot be reached, or went away.

    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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

    def send(self, data: bytes) -> None:
        """Send all bytes. If the server has closed the connection, the next read reports it."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed. An error line that it sent before can still be read.
            return
        except OSError as error:
            raise self._error("send to", error) from error

    def receive_into(self, buffer: bytearray) -> int:
        """Fill the buffer; return the number of bytes, fewer than its length if the server closed."""
        try:
            got = self._socket.recv_into(buffer)
            while 0 < got < len(buffer):
                more = self._socket.recv_into(memoryview(buffer)[got:])
                if not more:
                    break
                got += more
        except OSError as error:
            raise self._error("hear from", error) from error
        return got

    def receive(self, size: int) -> bytes:
        """Receive exactly ``size`` bytes."""
        buffer = bytearray(size)
        if self.receive_into(buffer) < size:
            raise self.gone()
        return bytes(buffer)

    def receive_line(self) -> bytes:
        """Receive a line with its newline, and nothing after it."""
        # Peek first: the bytes after the line belong to the first reply.
        held = b""
        while len(held) <= MAX_LINE:
            seen = self._peek()
            end = seen.find(b"\n") + 1
            held += self.receive(end or len(seen))
            if end:
                return held
        raise TooLargeError(f"the server at {self._path} answered a line of more than {MAX_LINE} bytes")

    def receive_rest(self) -> bytes:
        """Receive until the server closes, at most the limit of a line."""
        buffer = bytearray(MAX_LINE)
        return bytes(buffer[: self.receive_into(buffer)])

    def gone(self) -> UnavailableError:
        """Make the error for a server that closed without a reply."""
        return UnavailableError(f"the server at {self._path} went away without an answer")

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        self._socket.close()

    def _peek(self) -> bytes:
        try:
            seen = self._socket.recv(MAX_LINE, socket.MSG_PEEK)
        except OSError as error:
            raise self._error("hear from", error) from error
        if not seen:
            raise self.gone()
        return seen

    def _error(self, what: str, error: OSError) -> PolicyBridgeError:
        if isinstance(error, BlockingIOError):
            return DeadlineError(f"could not {what} the server at {self._path} within {self._timeout:g} s")
        return UnavailableError(f"could not {what} the server at {self._path}: {error.strerror or error}")
