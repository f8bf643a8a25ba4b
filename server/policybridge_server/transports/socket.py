"""Transport `socket`: LLVM's interactive protocol behind one JSON line, on a Unix socket; see proto/SOCKET.md."""

import socket
from pathlib import Path
from typing import Any

from policybridge_core.errors import UnavailableError
from policybridge_server.transports.contract import Host
from policybridge_server.transports.listener import Listener, remove_stale
from policybridge_server.transports.running import Running
from policybridge_server.transports.socket_session import SocketSession


class SocketTransport:
    """Listens on one path; each connection is one session."""

    def __init__(self, address: str) -> None:
        self._path = Path(address)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sessions: Running[SocketSession] = Running()

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
        self._listening = Listener(self._listener, host.loop, self._accept)

    def _accept(self, connection: socket.socket, address: Any) -> None:  # noqa: ARG002
        self._sessions.add(SocketSession(connection, self._host, self._sessions.discard))

    async def stop(self, grace: float) -> None:
        """Remove the path, give running sessions ``grace`` seconds to end, then end them."""
        self._listening.close()
        self._path.unlink(missing_ok=True)
        for session in self._sessions:
            session.drain()
        error = UnavailableError("the server shut down before the session ended")
        await self._sessions.drain(grace, lambda session: session.fail(error))
