"""TLS from files, which are read again when they change."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_server.access.files import WatchedFiles, check_secret

_LOG = logging.getLogger(__name__)

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2 that HTTP/2 allows (RFC 9113, section 9.2.2); TLS 1.3 has its own."""


@dataclass(frozen=True)
class TlsFiles:
    """The files of a server, in PEM.

    Attributes:
        certificate: the server's certificate, followed by those up to its authority.
        key: the certificate's key, without a password.
        client_ca: authorities that sign the certificates of clients; a client needs one then.

    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return [self.certificate, self.key, *([self.client_ca] if self.client_ca else [])]

    def load(self, protocols: list[str]) -> ssl.SSLContext:
        """Read the files.

        Args:
            protocols: the port's protocols, by their names in ALPN.

        Raises:
            InvalidError: a file cannot be read, has the wrong content, or the key is not the certificate's.

        """
        check_secret(self.key, "the TLS key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(protocols)
        # Without resumption every connection shows its certificate, and the newest authorities judge it.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            # Without the argument a key with a password would ask for it on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            if self.client_ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            names = ", ".join(map(str, self.paths))
            raise InvalidError(f"TLS cannot be served from {names}: {_reason(error)}") from error
        return context


def _no_password() -> str:
    raise ValueError("the key has a password; give one without")


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "a file does not exist"
    return getattr(error, "strerror", None) or str(error)


class ServerTls:
    """The TLS context of one port.

    When a client connects and a file has changed, all are read again. If they cannot be used, this is logged, and the
    old certificate stays. Open connections keep theirs.

    Args:
        files: the server's files.
        protocols: the port's protocols, by their names in ALPN.

    Attributes:
        context: accepts connections, always with the newest files.

    Raises:
        InvalidError: the files cannot be used.

    """

    def __init__(self, files: TlsFiles, protocols: list[str]) -> None:
        self._files = files
        self._protocols = protocols
        self._watched = WatchedFiles(files.paths)
        self._first = self._newest = files.load(protocols)
        self.context = files.load(protocols)
        # Called in each handshake, also without a name of the server. It may exchange the context.
        self.context.sni_callback = self._choose

    def newest(self) -> ssl.SSLContext:
        """Give the context of the newest files, for one connection that is just accepted.

        It remembers no session of TLS 1.2 that began with other files, as `context` may.
        """
        if self._watched.changed():
            try:
                self._newest = self._files.load(self._protocols)
                _LOG.info("the TLS files have changed; new connections get the new certificate")
            except InvalidError as error:
                _LOG.warning("the TLS files have changed and cannot be used; those before stay: %s", error)
        return self._newest

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> ssl.AlertDescription | None:
        first, newest = self._first, self.newest()
        if newest is not first and connection.session_reused:
            # The old files were used, and Python cannot change a context: the client has to begin anew.
            return ssl.AlertDescription.ALERT_DESCRIPTION_ACCESS_DENIED
        connection.context = newest
        return None
