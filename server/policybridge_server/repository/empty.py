"""A hint for a repository without a policy."""

from pathlib import Path
from typing import Final

from policybridge_server.repository.config import POLICY_TOML, is_policy
from policybridge_server.repository.guessing import has_versions

_FORM: Final = f"a repository holds a folder for each policy: NAME/{POLICY_TOML} and the versions NAME/1/, NAME/2/, …"


def say_empty(repository: Path) -> str | None:
    """Return a message that this folder has no policy, with the cure; ``None`` if it has one."""
    if _holds_policies(repository):
        return None
    if _is_served(repository):
        return f"{repository} is a policy and no repository: give the folder above it; {_FORM}"
    below = [folder for folder in _folders(repository) if _holds_policies(folder)]
    if below:
        return f"{repository} holds no policy, but {below[0]} does: give that folder; {_FORM}"
    return f"{repository} holds no policy; {_FORM}"


def _holds_policies(folder: Path) -> bool:
    return any(_is_served(inner) for inner in _folders(folder))


def _is_served(folder: Path) -> bool:
    return is_policy(folder) or has_versions(folder)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))
    except PermissionError:
        return []
