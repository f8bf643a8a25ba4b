"""The folders of a server's policies: its own, and copies of other places."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_server.config import ServerConfig
from policybridge_server.repository.lock import lock_for_changes
from policybridge_server.repository.remote import RemoteRepository

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Copy:
    """A folder that holds a copy.

    Attributes:
        origin: the address of fsspec, or of the leader.
        folder: of the copy.
        followed: whether the origin is a leader.

    """

    origin: str
    folder: Path
    followed: bool = False


def own_folders(config: ServerConfig) -> list[Path]:
    """Give the folders that are the policies themselves."""
    return [Path(each) for each in config.repository if not is_address(each)]


def all_folders(config: ServerConfig) -> list[Path]:
    """Give all folders of policies in the order of the options, and that of the leader's last."""
    made = {copy.origin: copy.folder for copy in copies(config)}
    named = [made.get(each, Path(each)) for each in config.repository]
    return [*named, *([made[config.follow]] if config.follow else [])]


def origins(config: ServerConfig) -> dict[Path, RemoteRepository]:
    """Give the addresses that this server may write, by the folders of their copies.

    Raises:
        PolicyBridgeError: an address cannot be used.

    """
    written = [copy for copy in copies(config) if not copy.followed] if config.allow_publish else []
    return {copy.folder: RemoteRepository(copy.origin) for copy in written}


def copies(config: ServerConfig, environment: Mapping[str, str] = os.environ) -> list[Copy]:
    """Return the copies, whose folders may not exist yet."""
    cache = config.cache or _cache(environment)
    made = [Copy(each, cache / _name(each)) for each in config.repository if is_address(each)]
    return [*made, *([Copy(config.follow, cache / _name(config.follow), followed=True)] if config.follow else [])]


@contextmanager
def hold_copies(config: ServerConfig) -> Iterator[None]:
    """Make the folders of the copies, and hold their locks: each server has copies of its own.

    Raises:
        PreconditionError: the file system refuses, or another server has them.

    """
    made = copies(config)
    _make_folders(made)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_for_changes([copy.folder for copy in made]))
        except PreconditionError as error:
            raise PreconditionError(f"{error}; each server keeps copies of its own: name another --cache") from error
        yield


def _make_folders(made: list[Copy]) -> None:
    for copy in made:
        try:
            copy.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreconditionError(
                f"there is no room for a copy of {copy.origin}: {error.strerror}: {copy.folder}; name a folder that can"
                " be written with --cache"
            ) from error


def is_address(text: str) -> bool:
    """Whether ``text`` is an address of fsspec, and no path."""
    return _ADDRESS.match(text) is not None


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or ""
    return (Path(home) if Path(home).is_absolute() else Path("~/.cache").expanduser()) / "policybridge"


def _name(origin: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", origin).strip("-.")[:60]
    return f"{readable}-{hashlib.sha256(origin.encode()).hexdigest()[:12]}"
