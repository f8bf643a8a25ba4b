"""A certificate and a token of one run: the servers of other machines follow the run's server, and nobody else does."""

import secrets
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from policybridge_core.errors import PreconditionError

if TYPE_CHECKING:
    from cryptography import x509

_DAYS: Final = 365
_SKEW: Final = timedelta(hours=1)
"""Clocks of machines differ."""


class FollowCredentials(AbstractContextManager["FollowCredentials"]):
    """Files for a server that others follow; they are removed at the end.

    Args:
        host: the server's name or address for other machines.

    Attributes:
        ca: the PEM that followers trust.
        token: the followers' token, with the scope ``follow`` alone.
        arguments: of ``policybridge serve``.

    Raises:
        PreconditionError: the package ``cryptography`` is missing.

    """

    def __init__(self, host: str) -> None:
        certificate, key = _self_signed(host)
        self.ca = certificate
        self.token = secrets.token_hex(32)
        self._held = ExitStack()
        folder = Path(self._held.enter_context(TemporaryDirectory(prefix="policybridge-train-")))
        tokens = f'[followers]\ntoken = "{self.token}"\nscopes = ["follow"]\n'.encode()
        self.arguments: list[str] = []
        for option, content in (("tls-certificate", certificate), ("tls-key", key), ("tokens", tokens)):
            (folder / option).touch(0o600)
            (folder / option).write_bytes(content)
            self.arguments += [f"--{option}", str(folder / option)]

    def __exit__(self, *_: object) -> None:
        self._held.close()


def _self_signed(host: str) -> tuple[bytes, bytes]:
    """Make a certificate for a host, and its key, in PEM."""
    try:
        from cryptography import x509  # noqa: PLC0415 - of the extra `ray`
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise PreconditionError(
            "servers on other machines follow this one by TLS, which needs the Python package 'cryptography': "
            "pip install 'policybridge[ray]'"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "policybridge train")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([_named(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), encoded


def _named(host: str) -> "x509.GeneralName":
    from cryptography import x509  # noqa: PLC0415 - of the extra `ray`

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
