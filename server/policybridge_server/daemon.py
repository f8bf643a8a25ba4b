"""The daemon: starts up, serves until a signal comes, shuts down."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.config import ServerConfig
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.ledger.contract import Bounds, load_ledger
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.publishing.watcher import FolderWatcher
from policybridge_server.repository import Limits, Repository, writable
from policybridge_server.repository.lock import lock_for_changes
from policybridge_server.transports.contract import Host, Transport, load_transport

_LOG = logging.getLogger(__name__)

_SWITCH_SECONDS: Final = 5e-4
"""For how long a thread keeps the interpreter lock: Python's own 5 ms would delay every decision while a version is
loaded in another thread."""


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends running sessions at once.

    Raises:
        PolicyBridgeError: a repository, an address or the ledger cannot be used.

    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    with lock_for_changes(writable(config.repository) if config.allow_publish else []), _ledger(config) as recorder:
        repository = Repository(config.repository, Limits(config.max_artifact_bytes, config.max_artifact_files))
        engine = Engine(repository, allow_python=config.allow_python, recorder=recorder)
        with asyncio.Runner(loop_factory=lambda: Loop(engine.flush, config.spin / 1e6)) as runner:
            loop = cast("Loop", runner.get_loop())
            runner.run(_Daemon(config, engine, loop, recorder).run())
        engine.close()


@contextmanager
def _ledger(config: ServerConfig) -> Iterator[LedgerRecorder | None]:
    if config.ledger is None:
        yield None
        return
    bounds = Bounds(config.ledger_max_bytes, config.ledger_max_age)
    store = load_ledger(config.ledger_store).open_store(config.ledger, bounds)
    with closing(LedgerRecorder(store)) as recorder:
        yield recorder


class _Daemon:
    """One run of the server: `_start_up`, wait for a signal, `_shut_down`."""

    def __init__(self, config: ServerConfig, engine: Engine, loop: Loop, recorder: LedgerRecorder | None) -> None:
        self._config = config
        self._engine = engine
        self._loop = loop
        self._recorder = recorder
        self._opener = SessionOpener(engine)
        self._publisher = Publisher(self._opener, allowed=config.allow_publish, keep_versions=config.keep_versions)
        self._transports = [load_transport(name, address) for name, address in config.addresses()]
        self._started: list[Transport] = []

    async def run(self) -> None:
        self._signals = self._watch_signals()
        await self._start_up()
        try:
            sys.stdout.write(f"ready {' '.join(transport.address for transport in self._started)}\n")
            sys.stdout.flush()
            await self._signals.get()
        finally:
            await self._shut_down()

    async def _start_up(self) -> None:
        post = self._loop.call_soon_threadsafe
        self._engine.attach(post)
        if self._recorder is not None:
            self._recorder.start(post)
        self._engine.versions.preload()
        await self._listen()
        watcher = FolderWatcher(self._engine.repository, self._publisher)
        self._watching = self._loop.create_task(watcher.watch())

    async def _shut_down(self) -> None:
        self._opener.drain()
        self._watching.cancel()
        await self._drain()
        self._publisher.close()

    def _watch_signals(self) -> "asyncio.Queue[signal.Signals]":
        signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, signals.put_nowait, number)
        return signals

    async def _listen(self) -> None:
        host = Host(self._opener, self._publisher, self._loop, self._config)
        try:
            for transport in self._transports:
                await transport.start(host)
                self._started.append(transport)
        except PolicyBridgeError:
            await self._stop(0)
            raise

    async def _drain(self) -> None:
        _LOG.info("draining: %d sessions", self._engine.sessions)
        stopping = asyncio.create_task(self._stop(self._config.grace))
        again = asyncio.create_task(self._signals.get())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await self._stop(0)
        again.cancel()
        await stopping

    async def _stop(self, grace: float) -> None:
        await asyncio.gather(*(transport.stop(grace) for transport in self._started))
