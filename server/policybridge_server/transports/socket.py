"""Transport `socket`: LLVM's interactive protocol behind one JSON line, on a Unix socket; see proto/SOCKET.md."""

import asyncio
import errno
import logging
import select
import socket
from pathlib import Path

from policybridge_serdes.errors import UnavailableError
from policybridge_server.transports.contract import Host
from policybridge_server.transports.socket_path import remove_stale
from policybridge_server.transports.socket_session import SocketSession

_LOG = logging.getLogger(__name__)

_ACCEPT_PAUSE = 0.1


class SocketTransport:
    """Listens on one path; each connection is one session."""

    def __init__(self, address: str) -> None:
        self._path = Path(address)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._sessions: set[SocketSession] = set()
        self._gone = asyncio.Event()

    @property
    def address(self) -> str:
        """The path, as clients take it."""
        return f"socket:{self._path}"

    async def start(self, host: Host) -> None:
        """Listen on the path; a socket file that a dead server left there is replaced."""
        self._host = host
        try:
            remove_stale(self._path)
            self._listener.bind(str(self._path))
        except OSError as error:
            raise UnavailableError(f"cannot listen on {self._path}: {error.strerror or error}") from error
        self._listener.listen(1024)
        host.turns.watch(self._listener.fileno(), self)

    def ready(self, events: int) -> None:  # noqa: ARG002
        """Accept whoever is waiting."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            self._sessions.add(SocketSession(connection, self._host, self._forget))

    def _forget(self, session: SocketSession) -> None:
        self._sessions.discard(session)
        self._gone.set()
        self._host.turns.leave()

    def _pause(self, error: OSError) -> None:
        # Out of descriptors: the listener stays readable, and asking again at once would only burn the processor.
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _LOG.warning("cannot accept: %s", error)
            turns, fd = self._host.turns, self._listener.fileno()
            turns.rewatch(fd, 0)
            asyncio.get_running_loop().call_later(_ACCEPT_PAUSE, self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._host.turns.rewatch(self._listener.fileno(), select.EPOLLIN)

    async def stop(self, grace: float) -> None:
        """Remove the path, let sessions end for ``grace`` seconds, then end them."""
        self._host.turns.unwatch(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for session in list(self._sessions):
            session.drain()
        try:
            async with asyncio.timeout(grace):
                while self._sessions:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            for session in list(self._sessions):
                session.fail(UnavailableError("the server shut down before the session ended"))
