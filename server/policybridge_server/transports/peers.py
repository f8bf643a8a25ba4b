"""Whose a connection is: the address that it came from, or the user of its process on this machine."""

import socket
import struct
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

_CREDENTIALS: Final = struct.Struct("3i")
_SITE: Final = 64
"""Bits of an IPv6 address that its network gives; the rest a host may choose, for each connection another."""


def peer_of(connection: socket.socket, address: Any) -> str:
    """Name the peer of an accepted connection: an IPv4 address, the network of an IPv6 address, or a user.

    Args:
        connection: on TCP or on a Unix socket.
        address: as `socket.accept` gives it.

    """
    # Of a Unix socket it is a text. To ask the socket for its family takes longer.
    if not isinstance(address, tuple):
        _, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return f"user {user}"
    host = ip_address(address[0].partition("%")[0])
    if not isinstance(host, IPv6Address):
        return str(host)
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return f"{IPv6Address(int(host) >> _SITE << _SITE)}/{_SITE}"
