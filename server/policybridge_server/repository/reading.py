"""Reads policies and versions from their folders, at start and when a folder is copied in."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from policybridge_core.digest import digest
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyVersion
from policybridge_server.repository.aliases import read_aliases
from policybridge_server.repository.checks import Limits, check_files, is_name, is_number
from policybridge_server.repository.config import POLICY_TOML, PolicyConfig, is_policy
from policybridge_server.repository.guessing import guess_config, has_versions, misplaced
from policybridge_server.repository.identity import version_digest
from policybridge_server.repository.numbers import NUMBERS, TAKEN, Taken
from policybridge_server.repository.retired import is_retired
from policybridge_server.repository.rollout import ROLLOUT
from policybridge_server.repository.stored import StoredPolicy, StoredVersion
from policybridge_server.repository.toml import check_size, parse_toml

_LOG = logging.getLogger(__name__)


def warn_of_misplaced(repository: Path) -> None:
    """Warn of each folder that has a model and no version.

    At start alone: while a version is copied in, its folder may have another name.
    """
    for folder, why in misplaced(repository):
        _LOG.warning("%s is not served: %s", folder, why)


def policy_folders(repository: Path) -> Iterator[Path]:
    """Give the folders of the policies in a repository."""
    for folder in sorted(repository.iterdir()):
        if folder.name.startswith("."):
            continue
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            # Others, such as `lost+found` on a disk of its own, are no policies.
            if is_name(folder.name):
                _LOG.warning("%s is not served: it cannot be read: permission denied", folder)
            continue
        if not (is_policy(folder) or (folder.is_dir() and has_versions(folder))):
            continue
        if not is_name(folder.name):
            _LOG.warning("%s is not served: a policy cannot have this name", folder)
        elif not folder.resolve().is_relative_to(repository.resolve()):
            _LOG.warning("%s is not served: it leads out of the repository", folder)
        else:
            yield folder


def version_folders(policy: Path) -> Iterator[Path]:
    """Return the folders of a policy's versions, without retired ones."""
    return (
        folder for folder in policy.iterdir() if is_number(folder.name) and folder.is_dir() and not is_retired(folder)
    )


def changed_at(path: Path) -> float:
    """Give the time (seconds since 1970) at which ``path`` was last written to; now, if it does not exist.

    It is the file system's change time (ctime), which a copying tool cannot set. Renaming the folder itself does not
    count as a change.
    """
    try:
        if not path.is_dir():
            return path.lstat().st_ctime
        folder = path.stat()
        # A rename changes the ctime, and a tool may have set the mtime, even into the future: take the earlier one.
        own = min(folder.st_mtime, folder.st_ctime)
        return max([own, *(inner.lstat().st_ctime for inner in path.rglob("*"))])
    except FileNotFoundError:
        return time.time()


def read_policy(folder: Path) -> StoredPolicy:
    """Read a policy without its versions. If its config cannot be used, the error takes the config's place.

    Without a ``policy.toml`` the backend follows from the files of its newest version.
    """
    name = folder.name
    file = folder / POLICY_TOML
    try:
        if file.is_symlink():
            raise PreconditionError(f"{file} is a symbolic link")
        if is_policy(folder):
            check_size(file.stat().st_size, str(file))
        text = file.read_bytes() if is_policy(folder) else b""
        config = parse_toml(text, str(file), PolicyConfig) if is_policy(folder) else guess_config(folder)
        taken = TAKEN.read(folder) or Taken()
        return StoredPolicy(
            name,
            folder,
            config,
            read_aliases(folder),
            rollout=ROLLOUT.read(folder),
            text=text.decode(),
            numbers=NUMBERS.read(folder),
            kept={number: taken.versions[number].epoch for number in taken.kept if number in taken.versions},
        )
    except PreconditionError as error:
        _LOG.warning("%s", error)
        return StoredPolicy(name, folder, error)
    except OSError as error:
        return _unreadable(name, folder, error)


def _unreadable(name: str, folder: Path, error: OSError) -> StoredPolicy:
    told = PreconditionError(f"{error.filename or folder} cannot be read: {error.strerror}")
    _LOG.warning("%s", told)
    return StoredPolicy(name, folder, told)


def read_version(folder: Path, config: PolicyConfig, limits: Limits) -> StoredVersion:
    """Read a version.

    Raises:
        PreconditionError: it has a file that is not allowed or cannot be read, or is larger than the limits.

    """
    try:
        check_files(folder, limits)
        identity = version_digest(digest(folder), config)
    except PolicyBridgeError as error:
        raise PreconditionError(str(error)) from error
    except OSError as error:
        raise PreconditionError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    return StoredVersion(PolicyVersion(folder.parent.name, int(folder.name), identity), folder, config)


def check_unchanged(version: StoredVersion) -> None:
    """Check that the files still have the version's digest.

    Raises:
        PreconditionError: they have been changed.

    """
    if version_digest(digest(version.folder), version.config) != version.policy.digest:
        raise PreconditionError(
            f"the files of {version} have changed since this server read them; a version never changes: put them into a"
            " folder with a new number, or restart the server, which gives them a new digest"
        )
