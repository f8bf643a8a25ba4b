"""Retired versions: no new session gets them, and their files are removed when their last session has ended."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.publishing.peers import Peers
from policybridge_server.repository import Repository, StoredPolicy, StoredVersion
from policybridge_server.repository.numbers import NUMBERS, Numbers
from policybridge_server.repository.retired import is_retired, mark_retired, remove_version

_LOG = logging.getLogger(__name__)

_MARKED: Final = 10.0
"""Seconds within which a process has marked its retired versions."""


class Retention:
    """Retires versions. For the loop thread.

    Args:
        repository: the repository of the versions.
        versions: the loaded versions.
        keep_versions: number of a policy's newest versions to keep, besides those with an alias; ``None``: all.
        peers: the other processes, which may also have sessions on a version.

    """

    def __init__(
        self, repository: Repository, versions: LoadedVersions, keep_versions: int | None, peers: Peers
    ) -> None:
        self._peers = peers
        self._waiting: dict[Path, asyncio.Event] = {}
        self._forgotten: dict[Path, float] = {}
        self._repository = repository
        self._versions = versions
        self._keep_versions = keep_versions
        self._retired: set[Path] = set()
        # One thread, so that a version is marked before it is removed.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="retention")
        versions.on_unload(self._unloaded)

    def retire_old(self, name: str) -> None:
        """Retire all versions of the policy ``name`` except the newest and those with an alias, if configured."""
        if self._keep_versions is None:
            return
        policy = self._repository.policy(name)
        old = sorted(policy.versions)[: -self._keep_versions]
        self.retire(policy, [number for number in old if not policy.named(number)])

    def retire(self, policy: StoredPolicy, numbers: Sequence[int]) -> "asyncio.Future[None]":
        """Retire these versions; when the future is done, they stay retired also after a crash."""
        for number in numbers:
            _LOG.info("%s@%d is retired; its files are deleted after its last session", policy.name, number)
        versions = [policy.versions[number] for number in numbers if number in policy.versions]
        given = _given(policy, numbers)
        if given is not None:
            self._repository.put(replace(self._repository.policy(policy.name), numbers=given))
        self._repository.forget(policy.name, numbers)
        self._retired.update(policy.folder / str(number) for number in numbers)
        marked = asyncio.get_running_loop().run_in_executor(self._disk, self._mark, policy.folder, list(numbers), given)
        loaded = {version.folder for version in versions if self._versions.get(version.policy) is not None}
        for number in numbers:
            if policy.folder / str(number) not in loaded:
                self._remove(policy.folder / str(number))
        self._versions.unload_unused()
        return marked

    def _mark(self, policy: Path, numbers: Sequence[int], given: Numbers | None) -> None:
        if given is not None:
            # Before the folders are gone, which show the highest number otherwise.
            NUMBERS.write(policy, given)
        origin = self._repository.origin(policy)
        if origin is not None:
            for number in numbers:
                origin.withdraw(policy.name, number)
        mark_retired(policy, numbers)

    def is_retired(self, folder: Path) -> bool:
        """Whether the version in this folder is retired and not removed yet."""
        # Another process marks its retired versions a moment after it reports them.
        told = time.monotonic() - self._forgotten.get(folder, -_MARKED) < _MARKED
        return folder in self._retired or told or is_retired(folder)

    def forgotten(self, folder: Path) -> None:
        """Note that another process retires the version in this folder."""
        self._forgotten[folder] = time.monotonic()

    async def left(self, folder: Path) -> None:
        """Wait until this process has the version in this folder no longer loaded."""
        while any(loaded.stored.folder == folder for loaded in self._versions.loaded):
            await self._waiting.setdefault(folder, asyncio.Event()).wait()

    def _unloaded(self, version: StoredVersion) -> None:
        waiting = self._waiting.pop(version.folder, None)
        if waiting is not None:
            waiting.set()
        if version.folder in self._retired:
            self._remove(version.folder)

    def _remove(self, folder: Path) -> None:
        self._peers.when_left(folder, partial(self._delete, folder))

    def _delete(self, folder: Path) -> None:
        # A warning, which is logged without --verbose too, because deleted files do not come back.
        _LOG.warning("%s is deleted: the version is retired, and no session is on it", folder)
        removed = asyncio.get_running_loop().run_in_executor(self._disk, remove_version, folder)
        removed.add_done_callback(lambda _: self._retired.discard(folder))

    def close(self) -> None:
        """Finish the queued work on the disk."""
        self._disk.shutdown()


def _given(policy: StoredPolicy, retired: Sequence[int]) -> Numbers | None:
    """Give the numbers to record if the highest version is retired."""
    numbers = policy.numbers
    if numbers is None or policy.given not in retired or policy.given <= numbers.highest:
        return None
    return msgspec.structs.replace(numbers, highest=policy.given)
