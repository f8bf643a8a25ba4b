"""The intake: policies and versions that are in the repository's folders, and not served yet."""

import asyncio
from pathlib import Path

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.publishing.compatibility import check_compatible
from policybridge_server.publishing.publication import Predecessor
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import StoredPolicy
from policybridge_server.repository.reading import read_policy, read_version


class Intake:
    """Takes folders as if they were published. For the loop thread.

    Args:
        opener: of the engine that serves them.
        publisher: switches to them.

    """

    def __init__(self, opener: SessionOpener, publisher: Publisher) -> None:
        self._opener = opener
        self._engine = opener.engine
        self._repository = opener.engine.repository
        self._publisher = publisher

    async def take(self, folder: Path) -> None:
        """Serve the policy or the version in ``folder``.

        Raises:
            PolicyBridgeError: it cannot be served; whoever asks for it is told the same.

        """
        if folder.parent in self._repository.folders:
            self._repository.put(await asyncio.to_thread(read_policy, folder))
            return
        async with self._opener.loading:
            policy, number = self._repository.policy(folder.parent.name), int(folder.name)
            if number in policy.versions or self._publisher.is_leaving(folder):
                return
            try:
                await self._take_version(folder, policy, number)
            except PolicyBridgeError as error:
                self._repository.refuse(policy.name, number, PreconditionError(str(error)))
                raise

    async def _take_version(self, folder: Path, policy: StoredPolicy, number: int) -> None:
        current = await self._publisher.current(policy.name)
        newer = current is not None and number > current.stored.policy.version
        old = Predecessor(current, current.clients()) if current is not None and newer else None
        self._publisher.switch(policy, await asyncio.to_thread(self._load, folder, policy, old))

    def _load(self, folder: Path, policy: StoredPolicy, old: Predecessor | None) -> LoadedVersion:
        loaded = self._engine.versions.prepare(read_version(folder, policy.usable, self._repository.limits))
        if old is not None:
            try:
                check_compatible(loaded, *old)
            except BaseException:
                loaded.close()
                raise
        return loaded
