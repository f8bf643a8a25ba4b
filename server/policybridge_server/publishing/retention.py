"""What becomes of versions that are wanted no more: out at once, and off the disk when their last session has ended."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository, StoredPolicy, StoredVersion
from policybridge_server.repository.retired import mark_retired, remove_version


class Retention:
    """Removes versions. For the loop thread.

    Args:
        repository: from which they go.
        versions: those that are loaded.
        keep: how many of a policy stay, beside those that an alias names.

    """

    def __init__(self, repository: Repository, versions: LoadedVersions, keep: int) -> None:
        self._repository = repository
        self._versions = versions
        self._keep = keep
        self._leaving: set[Path] = set()
        # One thread, so that a version is marked before it is removed.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="retention")
        versions.notify(self._unloaded)

    def retire_old(self, name: str) -> None:
        """Let go what is beyond the number that stays."""
        policy = self._repository.policy(name)
        old = sorted(policy.versions)[: -self._keep]
        self.retire(policy, [number for number in old if not policy.named(number)])

    def retire(self, policy: StoredPolicy, numbers: Sequence[int]) -> "asyncio.Future[None]":
        """Let these versions go; the future is done when they cannot come back."""
        versions = [policy.versions[number] for number in numbers if number in policy.versions]
        self._repository.forget(policy.name, numbers)
        self._leaving.update(policy.folder / str(number) for number in numbers)
        marked = asyncio.get_running_loop().run_in_executor(self._disk, mark_retired, policy.folder, list(numbers))
        loaded = {version.folder for version in versions if self._versions.get(version.policy) is not None}
        for number in numbers:
            if policy.folder / str(number) not in loaded:
                self._remove(policy.folder / str(number))
        self._versions.sweep()
        return marked

    def is_leaving(self, folder: Path) -> bool:
        """Whether the version in this folder is out and not gone yet."""
        return folder in self._leaving

    def _unloaded(self, version: StoredVersion) -> None:
        if version.folder in self._leaving:
            self._remove(version.folder)

    def _remove(self, folder: Path) -> None:
        removed = asyncio.get_running_loop().run_in_executor(self._disk, remove_version, folder)
        removed.add_done_callback(lambda _: self._leaving.discard(folder))

    def close(self) -> None:
        """Finish what is under way."""
        self._disk.shutdown()
