"""Channels to a server, in plaintext or over TLS, and the metadata that carries the token."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import grpc

from policybridge_client.credentials import Credentials, read_file
from policybridge_core.errors import DeadlineError, InvalidError, PreconditionError, UnavailableError

T = TypeVar("T")

_GRACE: Final = 0.5
"""Seconds that a call may take beyond its deadline, in which gRPC itself ends it."""

_LATE: Final = "Deadline Exceeded"
"""gRPC's details of a call that it ended at its deadline."""

_CLOSING: Final = 1.0
"""Seconds to wait for the end of a channel."""

_REFUSED: Final = ("GOAWAY received", "RST_STREAM with error code 7")
"""In gRPC's details of a call that the server has not seen: it is leaving, or takes no more streams."""

_AGAIN: Final = (0.0, 0.01, 0.1, 1.0)
"""Seconds before each further try of a refused call: gRPC may give the connection that refused one to the next, too."""

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


def ask(  # noqa: PLR0913 - by keyword
    method: Any, request: Any, target: str, timeout: float, metadata: Metadata = (), *, plain: bool = False
) -> Any:
    """Make a call with one answer, and give the answer.

    gRPC's deadline does not end a call whose bytes the server does not take: a stopped process, a machine that is gone.

    Args:
        method: of a stub.
        request: the message; for a streaming method an iterator of them.
        target: the server's, for the error.
        timeout: limit of the call, in seconds.
        metadata: see `token_metadata`.
        plain: whether the kernel takes the request in any case, so that gRPC's deadline is enough; saves 0.3 ms
            (measured).

    Raises:
        grpc.RpcError: the call failed.
        DeadlineError: there is no answer in time.
        InvalidError: the server says that all is well, and gives no answer.

    """
    late = DeadlineError(f"no answer from the server at {target} within {round(timeout, 3):g} s")
    make = method if plain else partial(_within, method)
    try:
        answer = make(request, timeout=timeout, metadata=metadata)
    except grpc.FutureTimeoutError:
        raise late from None
    except grpc.RpcError as failure:
        # Else it is the server's: a policy took too long.
        if _LATE in (failure.details() or ""):
            raise late from failure
        raise
    if answer is None:
        raise InvalidError(f"the server at {target} ended a call without its answer")
    return answer


class RefusedError(UnavailableError):
    """The server refused a call unseen, so that it can be made again.

    Cure: begin the call again; see `until_taken`.
    """


def was_refused(failure: grpc.RpcError) -> bool:
    """Say whether the server has not seen the call that failed so."""
    left = failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    return left and any(each in (failure.details() or "") for each in _REFUSED)


def until_taken(call: Callable[[], T], due: float) -> T:
    """Make a call again, at most four times, while servers refuse it unseen and ``due`` (monotonic) has not come."""
    for wait in _AGAIN:
        try:
            return call()
        except (RefusedError, grpc.RpcError) as failure:
            refused = isinstance(failure, RefusedError) or was_refused(failure)
            if not refused or monotonic() + wait >= due:
                raise
        sleep(wait)
    return call()


def was_closed(target: str) -> PreconditionError:
    """Make the error of a call after ``close()``; gRPC's own is a ValueError."""
    return PreconditionError(f"the connection to the server at {target} was closed; make another one")


def _within(method: Any, request: Any, *, timeout: float, metadata: Metadata) -> Any:
    call = method.future(request, timeout=timeout, metadata=metadata)
    try:
        return call.result(timeout + _GRACE)
    finally:
        call.cancel()


def close_channel(channel: grpc.Channel) -> None:
    """Close a channel; wait for a server that does not take the bytes of a cancelled call for a second at most."""
    closing = threading.Thread(target=channel.close, name="policybridge-closing", daemon=True)
    closing.start()
    closing.join(_CLOSING)


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
