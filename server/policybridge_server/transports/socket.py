"""Transport `socket`: LLVM's interactive protocol after one JSON line, on a Unix socket; see proto/SOCKET.md."""

import socket
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import UnavailableError
from policybridge_server.budget import PeerBudget
from policybridge_server.transports.contract import Host
from policybridge_server.transports.listener import Listener
from policybridge_server.transports.running import Running
from policybridge_server.transports.socket_file import bind_unix
from policybridge_server.transports.socket_frames import error_line
from policybridge_server.transports.socket_session import SocketSession

_REFUSAL: Final = error_line(UnavailableError("the server is full: all connections have sessions; try again later"))


class SocketTransport:
    """Listens on one path; each connection is one session."""

    def __init__(self, address: str) -> None:
        self._path = Path(address)
        self._sessions: Running[SocketSession] = Running()

    @property
    def address(self) -> str:
        """The path, in clients' form."""
        return f"socket:{self._path}"

    async def start(self, host: Host) -> None:
        """Listen on the path; a socket file that a dead server left there is replaced."""
        self._host = host
        listener, self._file = bind_unix(str(self._path), host.access.sockets.own)
        self._listening = Listener(listener, host.loop, host.doors, self._accept, _REFUSAL)
        self._listening.share = host.share

    def _accept(self, connection: socket.socket, address: Any, peer: PeerBudget) -> None:  # noqa: ARG002
        session = SocketSession(connection, self._host, peer, self._gone)
        self._sessions.add(session)
        if self._host.share is not None:
            self._host.share.connection(1)
        session.begin()

    def _gone(self, session: SocketSession) -> None:
        if session in self._sessions and self._host.share is not None:
            self._host.share.connection(-1)
        self._sessions.discard(session)

    async def stop(self, grace: float) -> None:
        """Remove the path, give running sessions ``grace`` seconds to end, then end them."""
        if self._file is not None:
            self._file.remove()
        self._listening.close()
        for session in self._sessions:
            session.drain()
        error = UnavailableError("the server shut down before the session ended")
        await self._sessions.drain(grace, lambda session: session.fail(error))
