"""The addresses of servers, and the table of connections that they name.

A list is one text: ``socket:/run/policybridge.sock,grpcs:policies.example:50051``.
"""

import re
from typing import Final

from policybridge_core.plugins import Table

CONNECTIONS = Table(
    kind="connection",
    group="policybridge.connections",
    own={
        "grpc": "policybridge_client.grpc:GrpcConnection",
        "grpcs": "policybridge_client.grpc:SecureGrpcConnection",
        "socket": "policybridge_client.socket:SocketConnection",
        "inprocess": "policybridge_server.embedded:EmbeddedConnection [server]",
        "mlbridge-pipe": "policybridge_client.pipe:PipeConnection",
    },
)

SERVER: Final = "POLICYBRIDGE_SERVER"
"""The environment variable with the address of the server."""

_NEXT: Final = re.compile(r",\s*([A-Za-z][A-Za-z0-9+.-]*):")


def split_addresses(text: str) -> list[str]:
    """Give the addresses of a list: after a comma, each begins with the name of a connection and a colon.

    Any other comma is part of an address: of a path, or of ``,serdes=NAME``.
    """
    addresses, begin = [], 0
    for match in _NEXT.finditer(text):
        if match[1] in CONNECTIONS:
            addresses.append(text[begin : match.start()])
            begin = match.start(1)
    return [*addresses, text[begin:]]


def scheme_of(address: str) -> tuple[str, str]:
    """Give the name of an address's connection, and its target."""
    scheme, _, target = address.partition(":")
    if scheme in CONNECTIONS:
        return scheme, target
    return ("socket" if "/" in address and not address.startswith("unix:") else "grpc"), address
