"""Retired versions: no new session gets them, and their files are removed when their last session has ended."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository, StoredPolicy, StoredVersion
from policybridge_server.repository.retired import mark_retired, remove_version


class Retention:
    """Retires versions. For the loop thread.

    Args:
        repository: holds them.
        versions: those that are loaded.
        keep_versions: how many of a policy are not retired, beside those that an alias names.

    """

    def __init__(self, repository: Repository, versions: LoadedVersions, keep_versions: int) -> None:
        self._repository = repository
        self._versions = versions
        self._keep_versions = keep_versions
        self._retired: set[Path] = set()
        # One thread, so that a version is marked before it is removed.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="retention")
        versions.on_unload(self._unloaded)

    def retire_old(self, name: str) -> None:
        """Retire all but the newest versions of the policy ``name`` and those that an alias names."""
        policy = self._repository.policy(name)
        old = sorted(policy.versions)[: -self._keep_versions]
        self.retire(policy, [number for number in old if not policy.named(number)])

    def retire(self, policy: StoredPolicy, numbers: Sequence[int]) -> "asyncio.Future[None]":
        """Retire these versions; when the future is done, they stay retired also after a crash."""
        versions = [policy.versions[number] for number in numbers if number in policy.versions]
        self._repository.forget(policy.name, numbers)
        self._retired.update(policy.folder / str(number) for number in numbers)
        marked = asyncio.get_running_loop().run_in_executor(self._disk, mark_retired, policy.folder, list(numbers))
        loaded = {version.folder for version in versions if self._versions.get(version.policy) is not None}
        for number in numbers:
            if policy.folder / str(number) not in loaded:
                self._remove(policy.folder / str(number))
        self._versions.unload_unused()
        return marked

    def is_retired(self, folder: Path) -> bool:
        """Whether the version in this folder is retired and not removed yet."""
        return folder in self._retired

    def _unloaded(self, version: StoredVersion) -> None:
        if version.folder in self._retired:
            self._remove(version.folder)

    def _remove(self, folder: Path) -> None:
        removed = asyncio.get_running_loop().run_in_executor(self._disk, remove_version, folder)
        removed.add_done_callback(lambda _: self._retired.discard(folder))

    def close(self) -> None:
        """Finish what is queued for the disk."""
        self._disk.shutdown()
