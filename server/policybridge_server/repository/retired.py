"""Versions on their way out: a mark says so for good, before the folder goes when the last session has ended."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from policybridge_server.repository.files import remove_folder, sync

_MARK: Final = ".out-"


def mark_retired(policy: Path, numbers: Iterable[int]) -> None:
    """Say that these versions are out, whenever the process dies."""
    for number in numbers:
        (policy / f"{_MARK}{number}").touch()
    sync(policy)


def is_retired(version: Path) -> bool:
    """Whether the version in this folder is out."""
    return (version.parent / f"{_MARK}{version.name}").exists()


def remove_version(version: Path) -> None:
    """Remove the folder of a version that is out."""
    remove_folder(version)
    (version.parent / f"{_MARK}{version.name}").unlink(missing_ok=True)


def remove_retired(policy: Path) -> None:
    """Remove all versions that are out, when no server has them loaded."""
    for mark in policy.glob(f"{_MARK}*"):
        remove_version(policy / mark.name.removeprefix(_MARK))
