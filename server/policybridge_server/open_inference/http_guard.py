"""Checks of an HTTP request before its path is served: a host of ours, a content type, a token's scope."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from policybridge_core.errors import InvalidError, PermissionDeniedError
from policybridge_server.access import Access, Scope
from policybridge_server.access.addresses import host_of

_OPEN: Final = ("/", "/v2/health/live", "/v2/health/ready")
"""The page at `/` holds no data: it asks for a token, and for the data with it."""

_TYPES: Final = ("application/json", "application/octet-stream")
_ANY: Final = "*"


class HttpGuard:
    """Checks each request. A browser on this machine must not become the client of a page of the Internet.

    Args:
        access: of the server.
        address: ``HOST:PORT`` that is listened on.
        names: more hosts that clients may name; ``*`` for any.

    """

    def __init__(self, access: Access, address: str, names: Sequence[str]) -> None:
        self._access = access
        self._names = {name.lower() for name in ("localhost", host_of(address), *names)}

    def check(self, request: web.Request) -> None:
        """Check one request.

        Raises:
            PermissionDeniedError: its host is not of this server, it comes from a page of another site, or its token
                lacks the scope of the path.
            UnauthenticatedError: it has no token, or one that is not in the file.
            HTTPUnsupportedMediaType: its body is neither JSON nor bytes.

        """
        self._check_host(request)
        if request.body_exists and hdrs.CONTENT_TYPE in request.headers and request.content_type not in _TYPES:
            # A page of another site may send some other types without asking first, and curl --data sends one of them.
            raise web.HTTPUnsupportedMediaType(
                reason=f"a body is {' or '.join(_TYPES)}, not {request.content_type}; curl --json sends the first"
            )
        self._access.check(request.headers.getall(hdrs.AUTHORIZATION, []), _scope(request))

    def _check_host(self, request: web.Request) -> None:
        host = request.headers.get(hdrs.HOST)
        if host is not None and not self._is_ours(_name(host)):
            raise PermissionDeniedError(
                f"the host {_name(host)!r} is not one of this server; its operator names it with --http-host"
            )
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin.partition("://")[2] != host:
            raise PermissionDeniedError(f"pages of {origin!r} may not use this server")

    def _is_ours(self, name: str) -> bool:
        # A page can give its own name any address, but it cannot be at an address without a name.
        return _ANY in self._names or name in self._names or _is_address(name)


def _name(host: str) -> str:
    """Give the name or address in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError as error:
        raise InvalidError(f"the host {host!r} cannot be read") from error


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _scope(request: web.Request) -> Scope | None:
    resource = request.match_info.route.resource
    path = "" if resource is None else resource.canonical
    if path in _OPEN:
        return None
    if request.method == hdrs.METH_POST and path.endswith("/infer"):
        return Scope.EVALUATE
    reads = request.method in (hdrs.METH_GET, hdrs.METH_HEAD) or path == "/v2/repository/index"
    return Scope.READ if reads else Scope.ADMIN
