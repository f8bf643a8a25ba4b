"""Connecting to the policy server, or to one of several."""

import os
import re
from collections.abc import Callable
from typing import Final, cast

from policybridge_client.addresses import CONNECTIONS, SERVER, scheme_of, split_addresses
from policybridge_client.contract import Connection
from policybridge_client.credentials import Credentials
from policybridge_client.several import SeveralServers
from policybridge_core.errors import InvalidError

_WITH_CREDENTIALS: Final = ("grpc", "grpcs")


def connect(address: str | None = None, *, timeout: float = 10.0, credentials: Credentials | None = None) -> Connection:
    """Make a connection. Nothing is sent until it is used.

    Args:
        address: ``socket:PATH``, ``grpc:HOST:PORT``, ``grpcs:HOST:PORT`` (TLS), ``grpc:unix:PATH``,
            ``inprocess:REPOSITORY``,
            ``mlbridge-pipe:BASE``, or ``NAME:TARGET`` of another distribution's connection; a path without a name is a
            socket, anything else without a name is a gRPC target. A gRPC target may be followed by ``,serdes=NAME``.
            Several addresses, with commas between, each with its name: the first server that answers is asked when a
            session is opened, but sockets that this machine has before all others. Without an address,
            POLICYBRIDGE_SERVER of the environment.
        timeout: limit of each wait for the server, in seconds.
        credentials: for gRPC on TCP; by default those that the environment names.

    Raises:
        InvalidError: a file of the credentials cannot be read, the address takes none, or there is no address.

    """
    address = address or os.environ.get(SERVER)
    if not address:
        raise InvalidError(f"no server is named: give an address, or set {SERVER}")
    several = split_addresses(address)
    if len(several) == 1:
        return _connect_one(several[0], timeout, credentials)
    if credentials is not None and not any(_is_with_credentials(each) for each in several):
        raise InvalidError(f"no address of {address} takes certificates and a token; those are for gRPC on TCP")
    return SeveralServers(
        several, lambda each: _connect_one(each, timeout, credentials if _is_with_credentials(each) else None)
    )


def _is_with_credentials(address: str) -> bool:
    return address.partition(":")[0] in _WITH_CREDENTIALS


def _connect_one(address: str, timeout: float, credentials: Credentials | None) -> Connection:
    if re.match("https?://", address):
        raise InvalidError(
            f"{address} is a page and no policy server: give socket:PATH, grpc:HOST:PORT or grpcs:HOST:PORT"
        )
    scheme, target = scheme_of(address)
    if target.endswith(".sock") and target == address and scheme == "grpc":
        raise InvalidError(f"{address} has no port: for a Unix socket give socket:{address}, for gRPC HOST:PORT")
    if scheme in _WITH_CREDENTIALS:
        secured = cast("Callable[..., Connection]", CONNECTIONS.load(scheme))
        return secured(target, timeout, credentials=credentials or Credentials.from_environment())
    if credentials is not None:
        raise InvalidError(f"{address} takes no certificates and no token; those are for gRPC on TCP")
    return cast("Callable[[str, float], Connection]", CONNECTIONS.load(scheme))(target, timeout)
