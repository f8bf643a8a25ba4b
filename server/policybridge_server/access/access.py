"""The access rules of one server's transports."""

import logging
from collections.abc import Sequence
from urllib.parse import unquote

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_server.access.addresses import host_of, is_loopback, is_loopback_address
from policybridge_server.access.sockets import SocketFiles
from policybridge_server.access.tls import TlsFiles
from policybridge_server.access.tokens import Scope, Tokens
from policybridge_server.config import ServerConfig

_LOG = logging.getLogger(__name__)


class Access:
    """The operator's rules, read once; every TCP port asks the same.

    Args:
        config: of the server.

    Attributes:
        tls: the files of TLS; ``None``: the TCP ports speak plaintext.
        sockets: how socket files and pipes are made.
        scopes: the scope of a gRPC method, by ``/package.Service/Method`` or ``/package.Service/``; ``None``: none.
            Other methods need `Scope.ADMIN`.

    Raises:
        InvalidError: a file cannot be used, or an option misses another.

    """

    def __init__(self, config: ServerConfig) -> None:
        self.scopes: dict[str, Scope | None] = {}
        self.sockets = SocketFiles.of(config.socket_mode, config.socket_owner, config.socket_group)
        self.tls = _tls(config)
        self._tokens = Tokens(config.tokens) if config.tokens else None
        self._insecure = config.insecure
        if self.tls is not None:
            # Read them now, so that a wrong file ends the start before any port is open.
            self.tls.load([])

    @property
    def asks_for_tokens(self) -> bool:
        """Whether clients on TCP need a token."""
        return self._tokens is not None

    def check(self, authorization: Sequence[str], scope: Scope | None) -> None:
        """Check that a client on TCP may do what needs ``scope``.

        Args:
            authorization: the values of its headers of this name.
            scope: that of the call; ``None`` if it needs no token.

        Raises:
            UnauthenticatedError: it has no token, or one that is not in the file.
            PermissionDeniedError: its token lacks the scope.

        """
        if self._tokens is not None and scope is not None:
            self._tokens.check(authorization, scope)

    def reporter(self, authorization: Sequence[str], peer: str) -> str:
        """Name the client whose word a session and its outcome are; empty: one whom the operator trusts with them.

        Args:
            authorization: the values of its headers of this name.
            peer: its address, as gRPC writes it.

        """
        if peer.startswith("unix:"):
            return ""
        if self._tokens is not None:
            return self._tokens.reporter(authorization)
        host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
        return "" if is_loopback_address(host) else f"the address {host}"

    def reload(self) -> None:
        """Read the file of tokens again now; the files of TLS are looked at for each connection."""
        if self._tokens is not None:
            self._tokens.reload()

    def scope_of(self, method: str) -> Scope | None:
        """Give the scope of a gRPC method, ``/package.Service/Method``."""
        if method in self.scopes:
            return self.scopes[method]
        return self.scopes.get(method[: method.rfind("/") + 1], Scope.ADMIN)

    def check_address(self, address: str) -> None:
        """Check that ``HOST:PORT`` may be listened on.

        Raises:
            PreconditionError: other machines can reach it, and it has not both TLS and tokens.

        """
        lacking = [name for name, has in (("TLS", self.tls), ("tokens", self._tokens)) if not has]
        if not lacking or is_loopback(host_of(address)):
            return
        without = f"{address} can be reached from other machines, without {' and without '.join(lacking)}"
        if not self._insecure:
            raise PreconditionError(
                f"{without}; give --tls-certificate, --tls-key and --tokens, or listen on 127.0.0.1, "
                "or say --insecure to serve everybody"
            )
        _LOG.warning("%s: every client that reaches it may use it, and its traffic is readable (--insecure)", without)


def _tls(config: ServerConfig) -> TlsFiles | None:
    certificate, key = config.tls_certificate, config.tls_key
    if certificate is None and key is None and config.tls_client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidError("TLS needs both --tls-certificate and --tls-key")
    return TlsFiles(certificate, key, config.tls_client_ca)
