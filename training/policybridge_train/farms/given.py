"""A server that the user runs, as the leader of a farm's servers."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_train.farms.contract import Leader

_GRPC: Final = ("grpc:", "grpcs:")


@dataclass(frozen=True)
class GivenServer:
    """A server at an address; how to follow it is read from the environment, as other clients do.

    Attributes:
        address: as compilers have it.

    """

    address: str

    @property
    def leader(self) -> Leader:
        """How it is reached.

        Raises:
            InvalidError: a file that the environment names cannot be read.

        """
        follow = self.address if self.address.startswith(_GRPC) else ""
        ca, token = _content("POLICYBRIDGE_TLS_CA"), _content("POLICYBRIDGE_TOKEN_FILE")
        return Leader(self.address, follow, ca, token.decode(errors="replace").strip())

    def ensure(self) -> bool:
        """Do nothing: whoever started it sees to it."""
        return False


def _content(variable: str) -> bytes:
    name = os.environ.get(variable)
    if not name:
        return b""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidError(f"{variable} names a file that cannot be read: {error}") from error
