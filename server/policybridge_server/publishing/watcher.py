"""Versions copied or renamed into the repository while the server runs.

A folder ``DIR/<policy>/<number>/`` is complete when nothing in it has changed for `SETTLED` seconds. The file system's
change times (ctime) are compared, because a copying tool cannot set them. A rename of the folder is no change: a
version that was written elsewhere on the file system is complete at once. A complete folder is published; a folder
that is refused, with the reason in the log, is tried again when it changes.

A ``policy.toml`` that changes under served versions changes none of them; this is logged.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository
from policybridge_server.repository.config import POLICY_TOML, is_policy
from policybridge_server.repository.reading import changed_at, policy_folders, read_policy, version_folders

_LOG = logging.getLogger(__name__)

SETTLED: Final = 1.0
"""Seconds."""

_PERIOD: Final = 0.4
"""Seconds between two looks at a folder that is not complete yet."""


class FolderWatcher:
    """Publishes new folders. For the loop thread.

    Args:
        repository: the repository to watch.
        publisher: publishes the versions.
        folders: the folders to watch; ``None``: all of the repository.

    """

    def __init__(self, repository: Repository, publisher: Publisher, folders: Sequence[Path] | None = None) -> None:
        self._repository = repository
        self._folders = repository.folders if folders is None else tuple(folders)
        self._publisher = publisher
        # Do not retry versions refused at start, unless they change.
        self._tried = {folder: changed for folder, changed in self._found().items() if self._is_refused(folder)}
        self._configs = self._found_configs()

    async def watch(self) -> None:
        """Publish new folders until cancelled. Without the package watchfiles, new folders are not noticed."""
        if not self._folders:
            return
        try:
            changes = _changes(self._folders)
        except ImportError as error:
            _LOG.info("folders are not watched, %s: pip install 'policybridge[server]'", error)
            return
        # The watch begins with the first wait, and so before the first look: nothing changes between the two unseen.
        waiting = asyncio.ensure_future(anext(changes, None))
        try:
            await asyncio.sleep(0)
            await self._publish_new()
            while await waiting is not None:
                waiting = asyncio.ensure_future(anext(changes, None))
                await self._publish_new()
        finally:
            waiting.cancel()

    async def _publish_new(self) -> None:
        await asyncio.to_thread(self._tell_changed_configs)
        # Look for a while even if nothing is new: changes in a new folder are not reported before it is watched.
        end = time.monotonic() + SETTLED
        while not await self._publish_complete() or time.monotonic() < end:
            await asyncio.sleep(_PERIOD)

    async def _publish_complete(self) -> bool:
        """Publish the complete folders; return whether there was no new folder."""
        seen = await asyncio.to_thread(self._found)
        new = {folder: changed for folder, changed in seen.items() if self._tried.get(folder) != changed}
        complete = [folder for folder, changed in new.items() if time.time() - changed >= SETTLED]
        for folder in complete:
            await self._publish(folder)
        self._tried = {folder: changed for folder, changed in seen.items() if folder in complete or folder not in new}
        return not new

    def _found_configs(self) -> dict[str, float]:
        """Give the policies that are served, with the time of the last change of their ``policy.toml``."""
        policies = [policy for name in self._repository.policies() if (policy := self._repository.find(name))]
        usable = [
            each
            for each in policies
            if each.folder.parent in self._folders
            and not isinstance(each.config, PreconditionError)
            and is_policy(each.folder)
        ]
        return {policy.name: changed_at(policy.folder / POLICY_TOML) for policy in usable}

    def _tell_changed_configs(self) -> None:
        before, self._configs = self._configs, self._found_configs()
        for name, changed in self._configs.items():
            policy = self._repository.policy(name)
            if before.get(name) != changed and read_policy(policy.folder).config != policy.config:
                _LOG.warning(
                    "policy.toml of %s has changed; its versions stay unchanged until this server is restarted,"
                    " and have new digests then",
                    name,
                )

    def _found(self) -> dict[Path, float]:
        """Give the folders of policies and versions that are not served, with the time of their last change."""
        folders: dict[Path, float] = {}
        for repository in self._folders:
            try:
                for policy in policy_folders(repository):
                    folders.update(self._unserved(policy))
            except OSError as error:
                # It is removed or forbidden during the look. An error would end the watch silently.
                _LOG.warning("new policies and versions in %s cannot be looked for: %s", repository, error)
        return folders

    def _unserved(self, folder: Path) -> dict[Path, float]:
        known = self._repository.find(folder.name)
        if known is None or isinstance(known.config, PreconditionError):
            return {folder: changed_at(folder / POLICY_TOML if is_policy(folder) else folder)}
        if known.folder != folder:
            return {}
        new = [version for version in version_folders(folder) if int(version.name) not in known.versions]
        return {version: changed_at(version) for version in new}

    def _is_refused(self, folder: Path) -> bool:
        known = self._repository.find(folder.parent.name)
        return self._repository.find(folder.name) is not None or (
            known is not None and folder.name.isdecimal() and int(folder.name) in known.refused
        )

    async def _publish(self, folder: Path) -> None:
        try:
            if folder.parent in self._repository.folders:
                # A policy. Its versions are found the next time.
                await self._publisher.add_policy(folder)
            else:
                await self._publisher.publish_folder(folder)
        except (PolicyBridgeError, OSError) as error:
            _LOG.warning("%s is not served: %s", folder, error)


def _changes(folders: Sequence[Path]) -> AsyncIterator[object]:
    # Imported late: it is an extra.
    from watchfiles import awatch  # noqa: PLC0415

    roots = [folder.resolve() for folder in folders]

    def matters(_: object, path: str) -> bool:
        # Staging folders are hidden.
        changed = Path(path)
        return not any(
            part.startswith(".")
            for root in roots
            if changed.is_relative_to(root)
            for part in changed.relative_to(root).parts
        )

    return awatch(*roots, watch_filter=matters, step=50, debounce=200)
