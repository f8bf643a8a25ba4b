"""Versions that somebody copies or renames into the repository while the server runs.

A folder ``DIR/<policy>/<number>/`` is complete when nothing in it has changed for `SETTLED` seconds, by the file
system's own clock of changes, which no copying tool can set. What is renamed into place counts from when it was
written, so that a version made elsewhere on the file system is taken at once. Then it is checked and loaded as if it
were published, and served, or refused with the reason in the log. A refused folder is looked at again when it changes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_server.publishing.intake import Intake
from policybridge_server.repository import Repository
from policybridge_server.repository.reading import changed_at, policy_folders, version_folders

_LOG = logging.getLogger(__name__)

SETTLED: Final = 1.0
_AGAIN: Final = 0.4


class FolderWatcher:
    """Notices what arrives. For the loop thread.

    Args:
        repository: whose folders are watched.
        intake: takes it.

    """

    def __init__(self, repository: Repository, intake: Intake) -> None:
        self._repository = repository
        self._intake = intake
        # What was refused at start is not looked at again before it changes.
        self._seen = {folder: changed for folder, changed in self._found().items() if self._is_refused(folder)}

    async def watch(self) -> None:
        """Take what arrives, until this is cancelled; a server without watchfiles notices nothing."""
        try:
            changes = _changes(self._repository.folders)
        except ImportError as error:
            _LOG.info("folders are not watched, %s: pip install 'policybridge[server]'", error)
            return
        await self._settle()
        async for _ in changes:
            await self._settle()

    async def _settle(self) -> None:
        # Not only as long as there is something: what happens in a new folder before it is watched is not told.
        calm = time.monotonic() + SETTLED
        while not await self._look() or time.monotonic() < calm:
            await asyncio.sleep(_AGAIN)

    async def _look(self) -> bool:
        """Take what is complete; say whether nothing is left to wait for."""
        found = await asyncio.to_thread(self._found)
        fresh = {folder: changed for folder, changed in found.items() if self._seen.get(folder) != changed}
        settled = [folder for folder, changed in fresh.items() if time.time() - changed >= SETTLED]
        for folder in settled:
            await self._take(folder)
        self._seen = {folder: changed for folder, changed in found.items() if folder in settled or folder not in fresh}
        # A policy that was taken may have versions by now.
        return not fresh

    def _found(self) -> dict[Path, float]:
        """List policies and versions that are not served, with the moment of their last change."""
        found: dict[Path, float] = {}
        for repository in self._repository.folders:
            for policy in policy_folders(repository):
                found.update(self._unserved(policy))
        return found

    def _unserved(self, folder: Path) -> dict[Path, float]:
        known = self._repository.find(folder.name)
        if known is None or isinstance(known.config, PreconditionError):
            return {folder: changed_at(folder / "policy.toml")}
        if known.folder != folder:
            return {}
        new = [version for version in version_folders(folder) if int(version.name) not in known.versions]
        return {version: changed_at(version) for version in new}

    def _is_refused(self, folder: Path) -> bool:
        known = self._repository.find(folder.parent.name)
        return self._repository.find(folder.name) is not None or (
            known is not None and folder.name.isdecimal() and int(folder.name) in known.refused
        )

    async def _take(self, folder: Path) -> None:
        try:
            await self._intake.take(folder)
        except (PolicyBridgeError, OSError) as error:
            _LOG.warning("%s is not served: %s", folder, error)


def _changes(folders: Sequence[Path]) -> AsyncIterator[object]:
    # Late: an extra, and a thread of its own.
    from watchfiles import awatch  # noqa: PLC0415

    roots = [folder.resolve() for folder in folders]

    def matters(_: object, path: str) -> bool:
        # Versions in the making are hidden.
        changed = Path(path)
        return not any(
            part.startswith(".")
            for root in roots
            if changed.is_relative_to(root)
            for part in changed.relative_to(root).parts
        )

    return awatch(*roots, watch_filter=matters, step=50, debounce=200)
