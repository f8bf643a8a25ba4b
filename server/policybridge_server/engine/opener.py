"""The opener: opens sessions for transports. A version that is not loaded yet is loaded in a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final

from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_server.engine.admission import Admission
from policybridge_server.engine.decision import Sink
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.forms import NO_FORMS, Forms
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.session import Session
from policybridge_server.repository import LATEST, StoredVersion

_LOG = logging.getLogger(__name__)

_FORMS_SECONDS: Final = 2.0
"""How long the opening of a session waits for forms that are being made."""

UNKNOWN_REPORTER: Final = "a client of another protocol"
"""Whose word a session is that comes by a door which does not know its clients."""


class SessionOpener:
    """The engine as transports see it.

    Attributes:
        engine: opens the sessions.
        loading: lock of loading and publishing: one at a time.
        turn: the lock among the server's processes for changes of the repository.
        make_forms: makes the forms of a version, in a thread; by default there are none.
        may_have_forms: whether a version may have forms, without a look at its files; by default none has.

    """

    def __init__(self, engine: Engine, admission: Admission | None = None) -> None:
        self._admission = admission or Admission()
        self.engine = engine
        self.loading = asyncio.Lock()
        self.turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        self.make_forms: Callable[[StoredVersion], Forms] = lambda _: NO_FORMS
        self.may_have_forms: Callable[[StoredVersion], bool] = lambda _: False
        self._draining = False

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Hold `turn` and `loading`, in this order, while the repository is changed."""
        async with self.turn(), self.loading:
            yield

    async def version(self, reference: PolicyReference) -> LoadedVersion:
        """Give the version that ``reference`` means now, loaded.

        Raises:
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        # Repeat: while this version was loaded, the reference may have moved to another one.
        while (loaded := self.engine.loaded(reference)) is None:
            async with self.loading:
                await asyncio.to_thread(self.engine.load, reference)
        return loaded

    async def open(
        self,
        reference: PolicyReference,
        options: SessionOptions,
        sink: Sink,
        client: str = "",
        reporter: str = UNKNOWN_REPORTER,
    ) -> Session:
        """Open a session; ``client`` is the host that it counts for, see `Admission`; ``reporter``: see `SessionView`.

        Raises:
            TooLargeError: there are too many sessions.
            UnavailableError: the server shuts down.
            NotFoundError: no such policy, version or alias.
            PreconditionError: it cannot be loaded.

        """
        with self._admitted(client) as leave:
            loaded = await self._for_session(reference, options)
            self.check_open()
            session = self.engine.open(loaded, options, sink, _alias(reference), reporter)
        session.on_end(leave)
        return session

    def open_now(
        self, reference: PolicyReference, options: SessionOptions, sink: Sink, client: str, reporter: str
    ) -> Session | None:
        """Open a session as `open` does, without a task; ``None``: its version or its forms are not there yet."""
        loaded = self._there(reference, options)
        if loaded is None:
            return None
        with self._admitted(client) as leave:
            self.check_open()
            session = self.engine.open(loaded, options, sink, _alias(reference), reporter)
        session.on_end(leave)
        return session

    @contextmanager
    def _admitted(self, client: str) -> Iterator[Callable[[], None]]:
        leave = self._admission.enter(client)
        try:
            yield leave
        except BaseException:
            leave()
            raise

    def _there(self, reference: PolicyReference, options: SessionOptions) -> LoadedVersion | None:
        # For a wrong reference `open` raises the error.
        with suppress(PolicyBridgeError):
            loaded = self.engine.loaded(self.engine.repository.chosen(reference, options.file))
            return None if loaded is None or (loaded.forms is None and options.evaluates) else loaded
        return None

    async def _for_session(self, reference: PolicyReference, options: SessionOptions) -> LoadedVersion:
        loaded = await self._chosen(reference, options.file)
        if loaded.forms is not None or not options.evaluates:
            return loaded
        # A compiler does not wait longer: the server decides for it, and the next ones get the forms.
        await asyncio.wait([self._making(loaded)], timeout=_FORMS_SECONDS)
        # Meanwhile the reference may have moved, and the version may have been unloaded.
        return await self._chosen(reference, options.file)

    async def make_forms_ahead(self) -> None:
        """Make the forms of each version that is loaded, one after the other, until this is cancelled.

        So the first session of a version need not wait for them. One that comes earlier does not wait for other
        versions' forms.
        """
        came, loop = asyncio.Event(), asyncio.get_running_loop()
        versions = self.engine.versions
        versions.on_load(lambda: loop.call_soon_threadsafe(came.set))
        try:
            while True:
                came.clear()
                lacking = (each for each in versions.loaded if each.making is None)
                loaded = next((each for each in lacking if self.may_have_forms(each.stored)), None)
                await (came.wait() if loaded is None else asyncio.wait([self._making(loaded)]))
        finally:
            versions.on_load(lambda: None)

    def _making(self, loaded: LoadedVersion) -> "asyncio.Task[None]":
        """Give the task that makes the forms of a version, or has made them; begin it, if nobody has."""
        if loaded.making is None:
            loaded.making = asyncio.create_task(self._make_forms(loaded))
        return loaded.making

    async def _make_forms(self, loaded: LoadedVersion) -> None:
        try:
            loaded.forms = await asyncio.to_thread(self.make_forms, loaded.stored)
        except Exception:
            loaded.forms = NO_FORMS
            _LOG.exception("the portable forms of %s cannot be made; its clients ask for each decision", loaded.stored)

    async def _chosen(self, reference: PolicyReference, file: str) -> LoadedVersion:
        chosen = self.engine.repository.chosen(reference, file)
        if chosen is not reference:
            # If a version that is being rolled out cannot be loaded, the others' version answers.
            with suppress(PreconditionError, NotFoundError):
                return await self.version(chosen)
        return await self.version(reference)

    def check_open(self) -> None:
        """Check that new sessions may be opened.

        Raises:
            UnavailableError: the server shuts down.

        """
        if self._draining:
            raise UnavailableError("the server is shutting down and opens no new session")

    @property
    def is_ready(self) -> bool:
        """Whether `check_ready` raises nothing."""
        with suppress(PolicyBridgeError):
            self.check_ready()
            return True
        return False

    def check_ready(self) -> None:
        """Check that a new session of some policy may be opened.

        Raises:
            UnavailableError: the server shuts down, or has no policy that is served.

        """
        self.check_open()
        repository = self.engine.repository
        for name in repository.policies():
            with suppress(PolicyBridgeError):
                repository.resolve(PolicyReference(name))
                return
        raise UnavailableError("the server has no policy that is served")

    def drain(self) -> None:
        """Refuse new sessions from now on."""
        self._draining = True


def _alias(reference: PolicyReference) -> str:
    """Give the alias that is asked for; empty where a client chose the version itself."""
    alias = "" if reference.version is not None else reference.alias or LATEST
    return "" if alias.startswith("sha256:") else alias
