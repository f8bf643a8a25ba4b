"""The TLS of a port that gRPC's own library serves."""

import logging

import grpc

from policybridge_core.errors import InvalidError
from policybridge_server.access import TlsFiles
from policybridge_server.access.files import WatchedFiles

_LOG = logging.getLogger(__name__)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Give credentials that follow the files: when a client connects and one has changed, all are read again.

    Raises:
        InvalidError: the files cannot be used.

    """
    watched = WatchedFiles(files.paths)

    def renewed() -> "grpc.ServerCertificateConfiguration | None":
        if not watched.changed():
            return None
        try:
            return _configuration(files)
        except InvalidError as error:
            _LOG.warning("the TLS files have changed and cannot be used; those before stay: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files),
        renewed,  # type: ignore[arg-type]  # It may give None: nothing has changed.
        require_client_authentication=files.client_ca is not None,
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    # Python's ssl names the fault of a file; gRPC would only refuse to listen.
    files.load([])
    try:
        authorities = files.client_ca.read_bytes() if files.client_ca else None
        return grpc.ssl_server_certificate_configuration(
            [(files.key.read_bytes(), files.certificate.read_bytes())], root_certificates=authorities
        )
    except OSError as error:
        raise InvalidError(f"a file of TLS cannot be read: {error.strerror}") from error
