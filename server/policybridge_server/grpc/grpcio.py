"""Transport `grpcio`: the same services as `grpc`, by gRPC's own library: slower, with all of its features."""

import asyncio
import logging
from pathlib import Path

import grpc
import grpc.aio

from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_server.access import Access, TlsFiles
from policybridge_server.access.files import WatchedFiles
from policybridge_server.grpc.guard import GuardInterceptor
from policybridge_server.grpc.services import add_services
from policybridge_server.grpc.transport import GrpcTransport, scheme_of
from policybridge_server.transports.contract import Host
from policybridge_server.transports.listener import check_port
from policybridge_server.transports.socket_file import SocketFile, check_free

_LOG = logging.getLogger(__name__)

_RETRY = 0.1
"""Seconds until an address that could not be listened on again is tried again."""

_SHORTEST_PING_MS = 100
"""Shortest time between a client's pings. By default gRPC disconnects clients that do not wait 5 minutes."""


class GrpcioTransport(GrpcTransport):
    """Listens on one address, ``HOST:PORT`` or ``unix:PATH``."""

    async def start(self, host: Host) -> None:
        """Listen; an address in use is an error."""
        self._stopping = False
        self._file: SocketFile | None = None
        await self._serve(host, self._asked)
        self._watching = host.loop.create_task(self._serve_again(host))

    async def _serve_again(self, host: Host) -> None:
        """Restart the library's server whenever it ends by itself, as it does at a path that is not UTF-8."""
        while not self._stopping:
            try:
                await self._server.wait_for_termination()
                return
            except Exception as error:  # any error of the library's loop
                _LOG.error("the gRPC library's server on %s ended, and is started again: %r", self._address, error)
            await self._server.stop(None)
            while not (self._stopping or await self._is_served(host)):
                await asyncio.sleep(_RETRY)

    async def _is_served(self, host: Host) -> bool:
        try:
            await self._serve(host, self._address)
        except UnavailableError as error:
            _LOG.warning("%s", error)
            return False
        return True

    async def _serve(self, host: Host, address: str) -> None:
        limit = host.config.message_limit
        options = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _SHORTEST_PING_MS),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _SHORTEST_PING_MS),
            ("grpc.enable_channelz", 1),
            ("grpc.server_handshake_timeout_ms", int(host.config.hello_timeout * 1000)),
            ("grpc.max_allowed_incoming_connections", max(1, (host.doors.boundary - _open_descriptors()) // 2)),
        ]
        on_tcp = not self._asked.startswith("unix:")
        checks = on_tcp and host.access.asks_for_tokens
        server = grpc.aio.server(options=options, interceptors=[GuardInterceptor(host.access)] if checks else None)
        add_services(server, host, self._calls)
        try:
            listen = self._listen_on_tcp if on_tcp else self._listen_on_unix
            port = listen(server, address, host.access)
        except (OSError, RuntimeError) as error:
            raise UnavailableError(f"cannot listen on {self._asked}: {error}") from error
        if on_tcp:
            self._address = f"{self._asked.rpartition(':')[0]}:{port}"
        self._scheme = scheme_of(self._asked, host)
        await server.start()
        self._server, self._end = server, self._stop_serving

    async def _stop_serving(self) -> None:
        self._stopping = True
        if self._file is not None:
            self._file.remove()
        # gRPC's own grace would answer new calls with CANCELLED, as if their clients had done it.
        await self._server.stop(None)
        # Not before: the library's `stop` needs a future that this task waits for, and that a cancellation would end.
        self._watching.cancel()

    @staticmethod
    def _listen_on_tcp(server: grpc.aio.Server, address: str, access: Access) -> int:
        check_port(address)
        access.check_address(address)
        if access.tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, server_credentials(access.tls))

    def _listen_on_unix(self, server: grpc.aio.Server, address: str, access: Access) -> int:
        path = Path(address.removeprefix("unix:"))
        # gRPC's library removes any file at the path that it binds, at start and at the end.
        bound = path.with_name(f"{path.name}~")
        check_free(path)
        with access.sockets.made_by_others():
            port = server.add_insecure_port(f"unix:{bound}")
        access.sockets.own(bound)
        bound.rename(path)
        self._file = SocketFile(path)
        return port


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Give credentials that follow the files: when a client connects and one has changed, all are read again.

    Raises:
        InvalidError: the files cannot be used.

    """
    watched = WatchedFiles(files.paths)

    def renewed() -> "grpc.ServerCertificateConfiguration | None":
        if not watched.changed():
            return None
        try:
            return _configuration(files)
        except InvalidError as error:
            _LOG.warning("the TLS files have changed and cannot be used; those before stay: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files),
        renewed,  # type: ignore[arg-type]  # It may give None: nothing has changed.
        require_client_authentication=files.client_ca is not None,
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    # Python's ssl names the fault of a file; gRPC would only refuse to listen.
    files.load([])
    try:
        authorities = files.client_ca.read_bytes() if files.client_ca else None
        return grpc.ssl_server_certificate_configuration(
            [(files.key.read_bytes(), files.certificate.read_bytes())], root_certificates=authorities
        )
    except OSError as error:
        raise InvalidError(f"a file of TLS cannot be read: {error.strerror}") from error
