"""The sockets that all workers of a server have in common. The parent binds them, once, and keeps them."""

import socket
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig
from policybridge_server.transports.listener import bind_tcp
from policybridge_server.transports.socket_file import SocketFile, bind_unix

_UNIX: Final = "unix:"

_LEADERS: Final = ("grpcio", "http", "pipe", "transport")
"""The fields of addresses that only the first worker serves."""


class Listening:
    """Binds the configured addresses.

    The sockets outlive a worker that dies: clients not yet accepted wait for another one.

    Args:
        config: the server's configuration.
        access: the rules for addresses.

    Attributes:
        config: with the real ports.
        sockets: descriptors by address.

    Raises:
        InvalidError: the configuration names no address that workers can share.
        PreconditionError: others can reach an address, and it lacks TLS or tokens.
        UnavailableError: an address cannot be used.

    """

    def __init__(self, config: ServerConfig, access: Access) -> None:
        if not (config.grpc or config.socket):
            raise InvalidError("--workers: only --grpc and --socket are shared by several workers, and none is given")
        self.config = config
        self.sockets: dict[str, int] = {}
        self._bound: list[socket.socket] = []
        self._files: list[SocketFile] = []
        try:
            grpc = [self._bind(address, access) for address in config.grpc]
            http = [self._bind_tcp(address, access) for address in config.http]
            for path in config.socket:
                self._bind_unix(path, path, access)
        except BaseException:
            self.close()
            raise
        self.config = msgspec.structs.replace(config, grpc=grpc, http=http)

    def _bind(self, address: str, access: Access) -> str:
        if not address.startswith(_UNIX):
            return self._bind_tcp(address, access)
        self._bind_unix(address.removeprefix(_UNIX), address, access)
        return address

    def _bind_tcp(self, address: str, access: Access) -> str:
        access.check_address(address)
        bound = bind_tcp(address)
        real = f"{address.rpartition(':')[0]}:{bound.getsockname()[1]}"
        self._keep(real, bound)
        return real

    def _bind_unix(self, path: str, address: str, access: Access) -> None:  # noqa: ARG002
        bound, file = bind_unix(path, access.sockets.own)
        self._keep(path, bound)
        self._files.extend([] if file is None else [file])

    def _keep(self, address: str, bound: socket.socket) -> None:
        self._bound.append(bound)
        self.sockets[address] = bound.fileno()

    def of_worker(self, index: int) -> ServerConfig:
        """Give the configuration of a worker: the first one serves every address, the others only the shared ones."""
        return self.config if index == 0 else msgspec.structs.replace(self.config, **{name: [] for name in _LEADERS})

    def given(self, index: int) -> dict[str, int]:
        """Give the sockets of a worker, by address."""
        shared = {*self.config.grpc, *self.config.socket}
        shared |= {address.removeprefix(_UNIX) for address in self.config.grpc}
        return {address: fd for address, fd in self.sockets.items() if index == 0 or address in shared}

    def found(self, addresses: list[str]) -> None:
        """Keep the real ports of gRPC's own library, so that another worker gets them when the first one has died."""
        own = [address.partition(":")[2] for address in addresses]
        first = len(self.config.grpc)
        grpcio = own[first : first + len(self.config.grpcio)]
        self.config = msgspec.structs.replace(self.config, grpcio=grpcio)

    def close(self) -> None:
        """Stop listening, once all workers have closed their sockets. Remove the files, except systemd's."""
        for file in self._files:
            file.remove()
        self._files.clear()
        for bound in self._bound:
            bound.close()
        self._bound.clear()
