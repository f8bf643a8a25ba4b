"""The opener: opens sessions for transports. A version that is not loaded yet is loaded in a thread."""

import asyncio

from policybridge_core.errors import UnavailableError
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_server.engine.decision import Sink
from policybridge_server.engine.engine import Engine, Session
from policybridge_server.engine.loaded import LoadedVersion


class SessionOpener:
    """The engine as transports see it.

    Attributes:
        engine: opens the sessions.
        loading: held while a version is loaded or published: one at a time.

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
        # Repeat: while this version was loaded, the reference may have come to mean another one.
        while (loaded := self.engine.loaded(reference)) is None:
            async with self.loading:
                await asyncio.to_thread(self.engine.load, reference)
        return loaded

    async def open(self, reference: PolicyReference, options: SessionOptions, sink: Sink) -> Session:
        """Open a session.

        Raises:
            UnavailableError: the server shuts down.
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        loaded = await self.version(reference)
        self.check_open()
        return self.engine.open(loaded, options, sink)

    def check_open(self) -> None:
        """Check that new sessions may be opened.

        Raises:
            UnavailableError: the server shuts down.

        """
        if self._draining:
            raise UnavailableError("the server is shutting down and opens no new session")

    def drain(self) -> None:
        """Refuse new sessions from now on."""
        self._draining = True
