"""From folders to policies and versions, at start and when something is dropped in."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

from policybridge_core.digest import digest
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyVersion
from policybridge_server.repository.aliases import read_aliases
from policybridge_server.repository.checks import Limits, check_files, is_name, is_number
from policybridge_server.repository.config import POLICY_TOML, PolicyConfig, is_policy, parse_config
from policybridge_server.repository.retired import is_retired
from policybridge_server.repository.stored import StoredPolicy, StoredVersion

_LOG = logging.getLogger(__name__)


def policy_folders(repository: Path) -> Iterator[Path]:
    """Give the folders of a repository that hold policies."""
    for folder in sorted(repository.iterdir()):
        if folder.name.startswith(".") or not is_policy(folder):
            continue
        if not is_name(folder.name):
            _LOG.warning("%s is not served: no name of a policy", folder)
        elif not folder.resolve().is_relative_to(repository.resolve()):
            _LOG.warning("%s is not served: it leads out of the repository", folder)
        else:
            yield folder


def version_folders(policy: Path) -> Iterator[Path]:
    """Give the folders of a policy that want to be versions."""
    return (
        folder for folder in policy.iterdir() if is_number(folder.name) and folder.is_dir() and not is_retired(folder)
    )


def changed_at(path: Path) -> float:
    """Give the moment at which ``path`` was last written to, as the file system knows it; now, where it is gone.

    A folder's own change of name or place is none; nor can a copying tool set it, as it can set a file's times.
    """
    try:
        if not path.is_dir():
            return path.lstat().st_ctime
        folder = path.stat()
        # A tool may have set the folder's time, to one in the future even.
        own = min(folder.st_mtime, folder.st_ctime)
        return max([own, *(inner.lstat().st_ctime for inner in path.rglob("*"))])
    except FileNotFoundError:
        return time.time()


def read_policy(folder: Path) -> StoredPolicy:
    """Read what is said of a policy; its versions are left out. A config that cannot be used is told in its place."""
    name = folder.name
    file = folder / POLICY_TOML
    try:
        if file.is_symlink():
            raise PreconditionError(f"{file} is a symbolic link")
        return StoredPolicy(name, folder, parse_config(file.read_bytes(), str(file)), read_aliases(folder))
    except PreconditionError as error:
        _LOG.warning("%s", error)
        return StoredPolicy(name, folder, error)


def read_version(folder: Path, config: PolicyConfig, limits: Limits) -> StoredVersion:
    """Read a version.

    Raises:
        PreconditionError: its files may not be served.

    """
    try:
        check_files(folder, limits)
    except PolicyBridgeError as error:
        raise PreconditionError(str(error)) from error
    return StoredVersion(PolicyVersion(folder.parent.name, int(folder.name), digest(folder)), folder, config)
