"""Policies without a ``policy.toml``: the files of a version give the backend, if only one has such files.

Also a hint for a repository without a policy.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_server.repository.checks import is_number
from policybridge_server.repository.config import POLICY_TOML, PolicyConfig, is_policy

_SUFFIXES: Final = {
    ".onnx": ("onnx", "model.onnx"),
    ".pt2": ("torch", "model.pt2"),
    ".tflite": ("litert", "model.tflite"),
}
"""Self-describing models: suffix → backend, and its default file."""

_NAMES: Final = {"saved_model.pb": "tensorflow", "policy.py": "python"}

_FORM: Final = f"a repository holds a folder for each policy: NAME/{POLICY_TOML} and the versions NAME/1/, NAME/2/, …"


def has_versions(policy: Path) -> bool:
    """Whether a folder has the versions of a policy; false if it cannot be read."""
    try:
        return any(_versions(policy))
    except OSError:
        return False


def _versions(policy: Path) -> Iterator[Path]:
    return (folder for folder in policy.iterdir() if is_number(folder.name) and folder.is_dir())


def guess_config(policy: Path) -> PolicyConfig:
    """Make the config of a policy without a ``policy.toml`` by the files of its newest version.

    Raises:
        PreconditionError: they are files of no backend, or of several.

    """
    newest = max(_versions(policy), key=lambda folder: int(folder.name))
    files = sorted(file.name for file in newest.iterdir() if file.is_file())
    # A Python policy may have models beside it.
    candidates = [name for name in files if name == "policy.py"] or [name for name in files if _is_known(name)]
    if len(candidates) != 1:
        tells = "no file of" if not candidates else f"{', '.join(candidates)} of"
        raise PreconditionError(
            f"policy {policy.name!r} has no {POLICY_TOML}, and {tells} version {newest.name} says which backend it is "
            f"for. One alone of {', '.join([*_NAMES, *(f'*{suffix}' for suffix in _SUFFIXES)])} does; otherwise write "
            f'a {POLICY_TOML} with `backend = "…"`'
        )
    return _config(candidates[0])


def _is_known(name: str) -> bool:
    return name in _NAMES or Path(name).suffix in _SUFFIXES


def _config(name: str) -> PolicyConfig:
    if name in _NAMES:
        return PolicyConfig(_NAMES[name])
    backend, usual = _SUFFIXES[Path(name).suffix]
    return PolicyConfig(backend, settings={} if name == usual else {"file": name})


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


def misplaced(repository: Path) -> Iterator[tuple[Path, str]]:
    """Give each folder that has a model and no version, with a message that names the place for the model."""
    for policy in _folders(repository):
        if not _is_served(policy) and (model := _model_below(policy)):
            where, right = model.relative_to(repository), f"{policy.name}/1/{model.name}"
            yield policy, f"{where} is in no version; the folder of a version is named by a number: {right}"


def _model_below(policy: Path) -> Path | None:
    try:
        files = (file for folder in (policy, *_folders(policy)) for file in folder.iterdir())
        return next((file for file in files if _is_known(file.name)), None)
    except OSError:
        return None


def _holds_policies(folder: Path) -> bool:
    return any(_is_served(inner) for inner in _folders(folder))


def _is_served(folder: Path) -> bool:
    return is_policy(folder) or has_versions(folder)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))
    except PermissionError:
        return []
