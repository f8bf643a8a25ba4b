"""The digest of a version: it covers everything that affects its advice, the files and keys of ``policy.toml``.

Two servers that give one digest give the same advice, so that a cache may key objects by it, and a session in a ledger
identifies its policy exactly.
"""

import hashlib
import json
from typing import Final

import msgspec

from policybridge_server.repository.config import PolicyConfig

_NO_ADVICE: Final = ("description", "aliases", "inline", "isolation", "memory_limit", "decision_timeout", "probe")
"""Keys of a ``policy.toml`` that do not affect advice. Any other key is in the digest, also one of a later release."""


def version_digest(files: str, config: PolicyConfig) -> str:
    """Give ``sha256:`` and the hexadecimal digest of a version.

    Args:
        files: the digest of the version's files, see `policybridge_core.digest`.
        config: the ``policy.toml`` that it is loaded with. Its comments, the order of its keys, values that are the
            defaults and the keys above do not change the digest.

    """
    stated = {key: value for key, value in msgspec.to_builtins(config).items() if key not in _NO_ADVICE}
    # The standard library's JSON: msgspec writes NaN and the infinities alike, as null.
    canonical = json.dumps(stated, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(f"{files}\n{canonical}\n".encode()).hexdigest()
