"""Certificates for tests, as an operator's own authority would issue them; and files of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path

    def replace_by(self, other: "Identity") -> None:
        """Put another certificate and its key into these files, each at once."""
        for mine, theirs in ((self.key, other.key), (self.certificate, other.certificate)):
            theirs.replace(mine)


class Authority:
    """Issues certificates into a folder.

    Attributes:
        ca: its own certificate.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *, expired: bool = False) -> Identity:
        """Issue a certificate for this machine, for servers and clients."""
        end = datetime.now(UTC) - timedelta(days=1) if expired else None
        made = self._authority.issue_cert("localhost", "127.0.0.1", "::1", not_before=_LONG_AGO, not_after=end)
        identity = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        identity.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        identity.key.touch(0o600)
        made.private_key_pem.write_to_path(identity.key)
        return identity


_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def token(name: str) -> str:
    """Give the token of a client."""
    return f"{name}-0123456789abcdef0123456789abcdef"


def write_tokens(path: Path, clients: Mapping[str, Sequence[str]]) -> Path:
    """Write a file of tokens at once: the clients' names and their scopes."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(0o600)
    entries = (f'[{name}]\ntoken = "{token(name)}"\nscopes = {list(scopes)}\n' for name, scopes in clients.items())
    fresh.write_text("\n".join(entries))
    return fresh.replace(path)
