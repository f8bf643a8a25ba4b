"""The digest of a version's files: a client that publishes computes it, and the server checks it.

The digest of a version, which sessions and the ledger show, is made of this and of the ``policy.toml``.
"""

import hashlib
from pathlib import Path
from typing import Final

LEFT_BY_PYTHON: Final = "__pycache__"
"""The folder that Python makes when it imports a policy; it is not part of the version."""


def content_digest(content: bytes) -> str:
    """Digest bytes: ``sha256:`` and hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def version_files(folder: Path) -> list[Path]:
    """List the files that make up a version, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if LEFT_BY_PYTHON not in path.parts and path.is_file())


def digest(folder: Path) -> str:
    """Digest a version's files by name and content: ``sha256:`` and hexadecimal digits."""
    total = hashlib.sha256()
    for file in version_files(folder):
        with file.open("rb") as content:
            total.update(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  ".encode())
        total.update(f"{file.relative_to(folder).as_posix()}\n".encode())
    return f"sha256:{total.hexdigest()}"
