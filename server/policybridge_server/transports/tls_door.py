"""The TLS side of one port: makes the channels of its connections."""

import socket

from policybridge_server.access import ServerTls, TlsFiles
from policybridge_server.budget import PeerBudget
from policybridge_server.loop import Handler, Loop
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.tls_channel import TlsChannel


class TlsDoor:
    """Wraps the connections of one port.

    Args:
        files: the server's TLS files.
        protocols: the port's protocols, by their names in ALPN.
        loop: the loop of the connections.

    Raises:
        InvalidError: the files cannot be used.

    """

    def __init__(self, files: TlsFiles, protocols: list[str], loop: Loop) -> None:
        self._tls = ServerTls(files, protocols)
        self._loop = loop

    def channel(self, connection: socket.socket, handler: Handler, peer: PeerBudget) -> SocketChannel:
        """Make the channel of a connection that was just accepted; its handshake is work of ``peer``."""
        wrapped = self._tls.newest().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return TlsChannel(wrapped, self._loop, handler, peer.work)
