"""Starts and ends the following of other servers."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from policybridge_server.config import ServerConfig
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.following.adopting import Adopter
from policybridge_server.following.following import Follower
from policybridge_server.following.leader import LeaderSource
from policybridge_server.following.places import Copy, copies
from policybridge_server.following.remote import RemoteSource
from policybridge_server.following.source import Source
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository.remote import RemoteRepository

_LOG = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds that the start waits for a source that does not answer."""


class Following:
    """All that a server follows. For the loop thread.

    Args:
        config: of the server.
        opener: of its engine.
        publisher: of the server.

    """

    def __init__(self, config: ServerConfig, opener: SessionOpener, publisher: Publisher) -> None:
        self._config = config
        self._opener = opener
        self._publisher = publisher
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to follow; wait until its present policies are served, or the source cannot be reached.

        Raises:
            PolicyBridgeError: an address cannot be used.

        """
        repository = self._opener.engine.repository
        followers = [
            Follower(self._source(copy), Adopter(self._opener, self._publisher, copy.folder), repository)
            for copy in copies(self._config)
        ]
        for follower in followers:
            self._tasks.append(asyncio.create_task(follower.watch()))
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(follower.tried() for follower in followers))

    def _source(self, copy: Copy) -> Source:
        if copy.followed:
            return LeaderSource(self._config, copy.folder)
        return RemoteSource(RemoteRepository(copy.origin), self._config.poll, may_be_new=self._config.allow_publish)

    def stop(self) -> None:
        """Stop following; the copies stay."""
        for task in self._tasks:
            task.cancel()
