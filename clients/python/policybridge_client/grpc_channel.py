"""Channels to a server, in plaintext or over TLS, and the metadata that carries the token."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

import grpc

from policybridge_client.credentials import Credentials, read_file
from policybridge_core.errors import InvalidError

Metadata = tuple[tuple[str, str], ...]

_LOCAL: Final = ("unix:", "unix-abstract:")

_NO_RETRIES: Final = ("grpc.enable_retries", 0)
"""gRPC repeats a streaming call that a server refused unseen, and if the server cannot be reached then, the call never
ends, not even if it is cancelled (1.85)."""


def split_address(address: str) -> tuple[str, bool]:
    """Give the gRPC target of ``grpc:TARGET``, ``grpcs:TARGET`` or ``TARGET``, and whether it is over TLS."""
    scheme, colon, target = address.partition(":")
    if not colon or scheme not in ("grpc", "grpcs"):
        return address, False
    return target.removeprefix("//"), scheme == "grpcs"


def open_channel(
    target: str, credentials: Credentials, *, secure: bool, options: Sequence[tuple[str, Any]] = ()
) -> grpc.Channel:
    """Make a channel; nothing is sent before it is used.

    Args:
        target: as in gRPC, ``HOST:PORT`` or ``unix:PATH``.
        credentials: the client's certificates, and the authorities that it trusts.
        secure: whether to speak TLS.
        options: of the channel.

    Raises:
        InvalidError: a file cannot be read.

    """
    options = [*options, _NO_RETRIES]
    if not secure:
        return grpc.insecure_channel(target, options=options)
    ca, certificate, key = credentials.ca, credentials.certificate, credentials.key
    made = grpc.ssl_channel_credentials(
        read_file(ca, "the authorities' certificates") if ca else None,
        read_file(key, "the client's key") if key else None,
        read_file(certificate, "the client's certificate") if certificate else None,
    )
    return grpc.secure_channel(target, made, options=options)


def token_metadata(target: str, credentials: Credentials, *, secure: bool) -> Metadata:
    """Give the metadata of every call; a Unix socket needs no token and is sent none.

    Raises:
        InvalidError: the token cannot be read, or others could read it on its way to ``target``.

    """
    token = None if target.startswith(_LOCAL) else credentials.token()
    if token is None:
        return ()
    if not (secure or _is_loopback(target)):
        raise InvalidError(f"a token is not sent in plaintext to {target}; write grpcs:{target}")
    return (("authorization", f"Bearer {token}"),)


def _is_loopback(target: str) -> bool:
    # ``dns:///HOST:PORT`` is gRPC's form of ``HOST:PORT``; with ``dns://SERVER/…`` another machine says who that is.
    host = target.removeprefix("dns:///").removeprefix("dns:").rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
