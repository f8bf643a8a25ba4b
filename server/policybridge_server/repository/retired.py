"""Retired versions: a mark beside the folder, until the folder is removed after the last session."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from policybridge_server.repository.files import remove_folder, sync

_LOG = logging.getLogger(__name__)

_MARK: Final = ".out-"


def mark_retired(policy: Path, numbers: Iterable[int]) -> None:
    """Mark these versions as retired; the marks survive a crash."""
    for number in numbers:
        (policy / f"{_MARK}{number}").touch()
    sync(policy)


def is_retired(version: Path) -> bool:
    """Whether the version in this folder is marked as retired."""
    return (version.parent / f"{_MARK}{version.name}").exists()


def remove_version(version: Path) -> None:
    """Remove the folder of a retired version, then its mark."""
    remove_folder(version)
    (version.parent / f"{_MARK}{version.name}").unlink(missing_ok=True)


def remove_retired(policy: Path) -> None:
    """Remove all retired versions; for the start, when no session is on them."""
    for mark in policy.glob(f"{_MARK}*"):
        version = policy / mark.name.removeprefix(_MARK)
        _LOG.warning("%s is deleted: it was retired before this server started", version)
        remove_version(version)
