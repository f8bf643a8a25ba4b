"""A client of a server's web page: JSON under ``/page/`` of its HTTP address."""

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from policybridge_client.credentials import Credentials
from policybridge_core.closing import Closing
from policybridge_core.errors import (
    InvalidError,
    PermissionDeniedError,
    PolicyBridgeError,
    UnauthenticatedError,
    UnavailableError,
    UnknownError,
)

_ERRORS = {400: InvalidError, 401: UnauthenticatedError, 403: PermissionDeniedError}


class PageClient(Closing):
    """One server's page.

    Args:
        address: ``http:HOST:PORT`` or ``https:HOST:PORT``, also with ``//``; without a scheme it is ``http``.
        timeout: limit of each wait, in seconds.
        credentials: the client's certificates and token; by default those that the environment names.

    Raises:
        InvalidError: the address is malformed, a file of the credentials cannot be read, or the token would be sent in
            plaintext to another machine.

    """

    def __init__(self, address: str, *, timeout: float = 10.0, credentials: Credentials | None = None) -> None:
        shown = credentials or Credentials.from_environment()
        scheme, host, port = _split(address)
        token = shown.token()
        if token and scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
            raise InvalidError(f"the token would be sent to {host} in plaintext; use https:{host}:{port}")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._address = f"{scheme}://{host}:{port}"
        self._connection = (
            http.client.HTTPSConnection(host, port, timeout=timeout, context=_tls(shown))
            if scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=timeout)
        )

    def get(self, path: str) -> Any:
        """Ask for ``/page/PATH``.

        Raises:
            UnavailableError: the server does not answer.
            PolicyBridgeError: it refuses.

        """
        try:
            self._connection.request("GET", f"/page/{path}", headers=self._headers)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise UnavailableError(f"the server at {self._address} does not answer: {error}") from error
        return self._read(answer.status, body)

    def _read(self, status: int, body: bytes) -> Any:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InvalidError(f"{self._address} is not the HTTP address of a policy server") from error
        if status != http.client.OK:
            told = content.get("error", "") if isinstance(content, dict) else ""
            kind: type[PolicyBridgeError] = _ERRORS.get(status, UnknownError)
            raise kind(f"the server at {self._address} refuses: {told or status}")
        return content

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _split(address: str) -> tuple[str, str, int]:
    scheme, colon, rest = address.partition(":")
    if not (colon and scheme in ("http", "https")):
        scheme, rest = "http", address
    try:
        parts = urlsplit(f"//{rest.removeprefix('//').rstrip('/')}")
        host, port = parts.hostname, parts.port or (443 if scheme == "https" else 80)
    except ValueError as error:
        raise InvalidError(f"the address {address!r} is not http:HOST:PORT: {error}") from error
    if not host or parts.path:
        raise InvalidError(f"the address {address!r} is not http:HOST:PORT or https:HOST:PORT")
    return scheme, host, port


def _tls(shown: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=shown.ca)
        if shown.certificate is not None:
            context.load_cert_chain(shown.certificate, shown.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidError(f"the certificates cannot be read: {error}") from error
    return context
