"""A client's credentials for a server on TCP: certificates and a token, from files; see docs/security.md."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import InvalidError

_OPTIONS: Final = {
    "ca": ("--tls-ca", "POLICYBRIDGE_TLS_CA", "PEM certificates of the authorities that sign the server's certificate"),
    "certificate": ("--tls-certificate", "POLICYBRIDGE_TLS_CERTIFICATE", "the client's certificate in PEM"),
    "key": ("--tls-key", "POLICYBRIDGE_TLS_KEY", "the private key of this certificate in PEM"),
    "token_file": ("--token-file", "POLICYBRIDGE_TOKEN_FILE", "file with the token for the server"),
}
"""Attribute of `Credentials` → option of the commands, environment variable, and help text."""


@dataclass(frozen=True)
class Credentials:
    """Files that are read when a connection is made.

    Attributes:
        ca: PEM certificates of the authorities that a server's certificate must come from; by default gRPC's own.
        certificate: the client's own chain in PEM, for servers that ask for one.
        key: private key of ``certificate`` in PEM.
        token_file: holds the token; white space around it is ignored.

    Raises:
        InvalidError: a certificate without a key, or a key without a certificate.

    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) is not (self.key is None):
            raise InvalidError("a client's certificate and its key must be given together")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Credentials":
        """Take the files that POLICYBRIDGE_TLS_CA, …_TLS_CERTIFICATE, …_TLS_KEY and POLICYBRIDGE_TOKEN_FILE name.

        Raises:
            InvalidError: a certificate without a key, or a key without a certificate.

        """
        named = {name: environment.get(variable) for name, (_, variable, _) in _OPTIONS.items()}
        return cls(**{name: Path(path) for name, path in named.items() if path})

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Credentials | None":
        """Take the files of `add_arguments`, each also from the environment; ``None`` if no option names one.

        Raises:
            InvalidError: a certificate without a key, or a key without a certificate.

        """
        given: dict[str, Any] = {variable: getattr(arguments, name) for name, (_, variable, _) in _OPTIONS.items()}
        named = {variable: path for variable, path in given.items() if path}
        return cls.from_environment({**os.environ, **named}) if named else None

    def token(self) -> str | None:
        """Read the token, if there is a file for it.

        Raises:
            InvalidError: the file cannot be read, or is empty.

        """
        if self.token_file is None:
            return None
        token = read_file(self.token_file, "the token").decode("latin-1").strip()
        if not token.isascii() or not token.isprintable() or not token:
            raise InvalidError(f"the file {self.token_file} holds no token: one line of printable ASCII characters")
        return token


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name the files."""
    for name, (option, variable, text) in _OPTIONS.items():
        parser.add_argument(option, dest=name, metavar="FILE", help=f"{text} (default: {variable} of the environment)")


def read_file(path: Path, what: str) -> bytes:
    """Read a file of credentials.

    Raises:
        InvalidError: it cannot be read.

    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidError(f"{what} cannot be read from {path}: {error.strerror}") from error
