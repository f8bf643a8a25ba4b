"""The digest of a version: it covers everything that affects its advice, the files and keys of ``policy.toml``.

Two servers that give one digest give the same advice, so that a cache may key objects by it, and a session in a ledger
identifies its policy exactly.
"""

import hashlib
import json
from typing import Any, Final

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
    stated = {key: value for key, value in msgspec.to_builtins(_plain(config)).items() if key not in _NO_ADVICE}
    # The standard library's JSON: msgspec writes NaN and the infinities alike, as null.
    canonical = json.dumps(stated, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(f"{files}\n{canonical}\n".encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a configuration whose values that equal their defaults are these objects: msgspec leaves out no others."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    fields = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    return msgspec.structs.replace(
        value,
        **{
            field.name: field.default if type(own) is type(field.default) and own == field.default else _plain(own)
            for field, own in fields
        },
    )
