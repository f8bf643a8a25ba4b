"""``DIR/<policy>/aliases.toml``: the aliases that were set while a server ran."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_server.repository.files import replace_file, sync
from policybridge_server.repository.toml import parse_toml

_FILE: Final = "aliases.toml"

LARGEST: Final = 1 << 20
"""Bytes of the file: some ten thousand aliases."""


def read_aliases(policy: Path) -> dict[str, int]:
    """Read the aliases of the policy in this folder; empty if none has been set.

    Raises:
        PreconditionError: the file cannot be used.

    """
    file = policy / _FILE
    return parse_toml(file.read_bytes(), str(file), dict[str, int], LARGEST) if file.is_file() else {}


def write_aliases(policy: Path, aliases: Mapping[str, int]) -> None:
    """Replace the aliases of the policy in this folder, all at once and durably.

    Raises:
        PreconditionError: there are too many; the file stays unchanged.

    """
    if not aliases:
        # As it was before the first alias was set.
        (policy / _FILE).unlink(missing_ok=True)
        sync(policy)
        return
    content = aliases_toml(aliases)
    if len(content) > LARGEST:
        raise PreconditionError(f"{len(aliases)} aliases need more than {LARGEST} bytes in {_FILE}; set fewer")
    replace_file(policy / _FILE, content)


def aliases_toml(aliases: Mapping[str, int]) -> bytes:
    """Give the content of the file."""
    return "".join(f'"{name}" = {number}\n' for name, number in sorted(aliases.items())).encode()
