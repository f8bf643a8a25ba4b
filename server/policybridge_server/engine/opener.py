"""The opener: opens sessions for transports, loading off the loop thread what is not loaded yet."""

import asyncio

from policybridge_core.errors import UnavailableError
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_server.engine.decision import Sink
from policybridge_server.engine.engine import Engine, Session
from policybridge_server.engine.loaded import LoadedVersion


class SessionOpener:
    """The engine as transports see it.

    Attributes:
        engine: what they ask.
        loading: held while a version is loaded off the loop thread: one at a time.

    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loading = asyncio.Lock()
        self._draining = False

    async def version(self, reference: PolicyReference) -> LoadedVersion:
        """Give the version that ``reference`` means now, loaded.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        # Again, because what was loaded may be superseded before its turn comes.
        while (loaded := self.engine.loaded(reference)) is None:
            async with self.loading:
                await asyncio.to_thread(self.engine.load, reference)
        return loaded

    async def open(self, reference: PolicyReference, options: SessionOptions, sink: Sink) -> Session:
        """Open a session.

        Raises:
            UnavailableError: the server drains.
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        loaded = await self.version(reference)
        self.check_open()
        return self.engine.open(loaded, options, sink)

    def check_open(self) -> None:
        """Let nobody in who comes too late.

        Raises:
            UnavailableError: the server drains.

        """
        if self._draining:
            raise UnavailableError("the server is shutting down and opens no new session")

    def drain(self) -> None:
        """Open no more sessions."""
        self._draining = True
