"""Keeps a server's copy of the policies of a source as the source is."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_serdes import PolicyVersion
from policybridge_server.following.adopting import MEANWHILE, Adopter
from policybridge_server.following.source import Source, SourceChange
from policybridge_server.following.state import Lack, PolicyState
from policybridge_server.repository import Repository

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
"""Seconds before a source that cannot be reached is tried again."""

_AGAIN: Final = 5.0
"""Seconds before a version that could not be had is tried again."""

_Given = TypeVar("_Given")


class Follower:
    """Takes the changes of one source. For the loop thread.

    Args:
        source: the source of the policies.
        adopter: applies them to this server.
        repository: this server's repository.

    """

    def __init__(self, source: Source, adopter: Adopter, repository: Repository) -> None:
        self._source = source
        self._adopter = adopter
        self._repository = repository
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="following")
        self._policies: dict[str, PolicyState] = {}
        self._lacks: dict[str, list[Lack]] = {}
        self._revision = 0
        self._adopting = asyncio.Lock()
        self._tried = asyncio.Event()

    async def tried(self) -> None:
        """Wait until the source has been asked once, and its policies are served if it could be reached."""
        await self._tried.wait()

    async def watch(self) -> None:
        """Follow until the task is cancelled; a source that cannot be reached is tried again and again."""
        again = asyncio.create_task(self._try_again())
        try:
            await self._follow()
        finally:
            again.cancel()
            self._source.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self) -> None:
        pause, told = _FIRST_PAUSE, False
        while True:
            try:
                changes = self._source.changes()
                while (taken := await self._run(partial(self._next, changes))) is not None:
                    if told:
                        _LOG.warning("%s is there again", self._source.name)
                    pause, told = _FIRST_PAUSE, False
                    await self._take(taken)
            except PolicyBridgeError as error:
                if not told:
                    _LOG.warning("%s cannot be followed; its last policies are served on: %s", self._source.name, error)
                told = True
            self._tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _next(self, changes: Iterator[SourceChange]) -> tuple[SourceChange, int] | None:
        # The revision before the look: if the repository changes in between, the result may be older.
        revision = self._repository.revision
        change = next(changes, None)
        return None if change is None else (change, revision)

    async def _take(self, taken: tuple[SourceChange, int]) -> None:
        change, seen = taken
        for state in change.policies:
            self._policies[state.name] = state
        self._revision = change.revision
        await self._adopt([state.name for state in change.policies], seen)
        self._tried.set()

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN)
            names = [name for name, lacks in self._lacks.items() if any(lack.passing for lack in lacks)]
            if names and not self._source.polled:
                await self._adopt(names, self._repository.revision)

    async def _adopt(self, names: list[str], seen: int) -> None:
        async with self._adopting:
            for name in names:
                self._lacks[name] = await self._adopt_one(self._policies[name], seen)
            lacks = [lack for each in self._lacks.values() for lack in each]
            await self._run(partial(self._source.adopted, self._revision, lacks, self._kept()))

    def _kept(self) -> list[tuple[PolicyVersion, str]]:
        policies = [policy for name in self._policies if (policy := self._repository.find(name)) is not None]
        return [
            (policy.versions[number].policy, epoch)
            for policy in policies
            for number, epoch in policy.kept.items()
            if number in policy.versions
        ]

    async def _adopt_one(self, state: PolicyState, seen: int) -> list[Lack]:
        before = self._lacks.get(state.name, [])
        lacks = await self._adopter.adopt(state, self._source.fetch, still=lambda: self._is_unchanged(state.name, seen))
        for lack in lacks:
            if lack not in before and lack.reason != MEANWHILE:
                _LOG.warning("%s has policies that are not served here: %s", self._source.name, lack)
        return lacks

    def _is_unchanged(self, name: str, seen: int) -> bool:
        return not self._source.polled or all(each.name != name for each in self._repository.changed_since(seen))

    async def _run(self, work: Callable[[], _Given]) -> _Given:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise UnavailableError(f"{error}") from error
