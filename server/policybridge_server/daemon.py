"""The daemon: start up, serve, shut down."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import cast

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_server.config import ServerConfig
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.ledger.store import Bounds, open_store
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.publishing.watcher import FolderWatcher
from policybridge_server.repository import Limits, Repository, writable
from policybridge_server.repository.lock import changing
from policybridge_server.transports.contract import Host, Transport, load_transport

_LOG = logging.getLogger(__name__)

_SWITCH_SECONDS = 5e-4
"""Python's own 5 ms is what the loop thread would wait for while a version is loaded beside it."""


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends running sessions at once.

    Raises:
        PolicyBridgeError: a repository, an address or the ledger cannot be used.

    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _publishing(config), _ledger(config) as recorder:
        repository = Repository(config.repository, Limits(config.max_artifact_bytes, config.max_artifact_files))
        engine = Engine(repository, allow_python=config.allow_python, recorder=recorder)
        with asyncio.Runner(loop_factory=lambda: Loop(engine.flush, config.spin / 1e6)) as runner:
            loop = cast("Loop", runner.get_loop())
            runner.run(_Daemon(config, engine, loop, recorder).run())
        engine.close()


def _publishing(config: ServerConfig) -> AbstractContextManager[None]:
    return changing(writable(config.repository) if config.allow_publish else [])


@contextmanager
def _ledger(config: ServerConfig) -> Iterator[LedgerRecorder | None]:
    if config.ledger is None:
        yield None
        return
    bounds = Bounds(config.ledger_max_bytes, config.ledger_max_age)
    with closing(LedgerRecorder(open_store(config.ledger_store, config.ledger, bounds))) as recorder:
        yield recorder


class _Daemon:
    def __init__(self, config: ServerConfig, engine: Engine, loop: Loop, recorder: LedgerRecorder | None) -> None:
        self._config = config
        self._engine = engine
        self._loop = loop
        self._recorder = recorder
        self._transports = [
            *(load_transport("grpc", address) for address in config.grpc),
            *(load_transport("grpcio", address) for address in config.grpcio),
            *(load_transport("socket", str(path)) for path in config.socket),
            *(load_transport("http", address) for address in config.http),
            *(load_transport("pipe", pipe) for pipe in config.pipe),
        ]

    async def run(self) -> None:
        self._signals = self._watch_signals()
        post = asyncio.get_running_loop().call_soon_threadsafe
        self._engine.attach(post)
        if self._recorder is not None:
            self._recorder.start(post)
        self._preload()
        opener = SessionOpener(self._engine)
        publisher = Publisher(opener, allowed=self._config.allow_publish, keep_versions=self._config.keep_versions)
        started = await self._listen(Host(opener, publisher, self._loop, self._config))
        watcher = FolderWatcher(self._engine.repository, publisher)
        watching = asyncio.create_task(watcher.watch())
        try:
            sys.stdout.write(f"ready {' '.join(transport.address for transport in started)}\n")
            sys.stdout.flush()
            await self._signals.get()
        finally:
            opener.drain()
            watching.cancel()
            await self._drain(started)
            publisher.close()

    def _watch_signals(self) -> "asyncio.Queue[signal.Signals]":
        signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
        return signals

    def _preload(self) -> None:
        """Load what new sessions will ask for; a policy that cannot be loaded says why when it is asked for."""
        for name in self._engine.repository.policies():
            # A version that cannot be loaded is refused, and the one before it is the newest then.
            while not self._load_newest(name):
                continue

    def _load_newest(self, name: str) -> bool:
        """Say whether it is loaded, or there is nothing to load; a version that cannot be loaded is refused."""
        repository = self._engine.repository
        try:
            loaded = self._engine.load(PolicyReference(name))
        except PolicyBridgeError as error:
            _LOG.warning("policy %s is not served: %s", name, error)
            latest = repository.policy(name).latest
            if latest is None or not isinstance(error, PreconditionError):
                return True
            repository.refuse(name, latest, error)
            return repository.policy(name).latest is None
        _LOG.info("loaded %s: %s", loaded.stored, loaded.probe)
        return True

    async def _listen(self, host: Host) -> list[Transport]:
        started: list[Transport] = []
        try:
            for transport in self._transports:
                await transport.start(host)
                started.append(transport)
        except PolicyBridgeError:
            await _stop(started, 0)
            raise
        return started

    async def _drain(self, started: list[Transport]) -> None:
        _LOG.info("draining: %d sessions", self._engine.sessions)
        stopping = asyncio.create_task(_stop(started, self._config.grace))
        again = asyncio.create_task(self._signals.get())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await _stop(started, 0)
        again.cancel()
        await stopping


async def _stop(transports: list[Transport], grace: float) -> None:
    await asyncio.gather(*(transport.stop(grace) for transport in transports))
