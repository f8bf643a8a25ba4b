"""The parent: binds the sockets and keeps the workers running; `exchange` passes their messages on.

It takes no connection and makes no decision.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, TextIO

from policybridge_core.errors import PolicyBridgeError, UnavailableError, UnsupportedError
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig
from policybridge_server.daemon import changed, say, tell_unclaimed, watch_signals
from policybridge_server.following.places import hold_copies
from policybridge_server.ledger.contract import Bounds, SharedLedger, SharedStore, load_ledger
from policybridge_server.ledger.place import parse_place
from policybridge_server.output import own_output
from policybridge_server.reloading import Configuration, with_reloaded
from policybridge_server.repository.lock import lock_for_changes
from policybridge_server.systemd import notify, notify_reloading
from policybridge_server.workers.exchange import Exchange
from policybridge_server.workers.listening import Listening
from policybridge_server.workers.member import Member
from policybridge_server.workers.table import Row, make_table
from policybridge_server.workers.watch import Watch

_LOG = logging.getLogger(__name__)

_STARTS: Final = 3
"""So many processes in a row may end before they serve; then the server ends."""

_LATER: Final = 0.5
"""Seconds before the replacement of a process that ended before it served."""


def serve_with_workers(config: ServerConfig, *, reread: Callable[[], ServerConfig] | None = None) -> None:
    """Serve with several workers until SIGTERM or SIGINT; see `policybridge_server.daemon.serve`.

    Raises:
        PolicyBridgeError: a repository, an address or the ledger cannot be used, or the workers cannot start.

    """
    tell_unclaimed(config)
    with own_output() as output, lock_for_changes(changed(config)), hold_copies(config), _shared_store(config) as store:
        listening = Listening(config, Access(config))
        try:
            asyncio.run(Parent(config, listening, store, reread or (lambda: config)).run(output))
        finally:
            listening.close()


@contextmanager
def _shared_store(config: ServerConfig) -> Iterator[SharedStore | None]:
    """Hold the ledger, so that no other server writes it."""
    if config.ledger is None:
        yield None
        return
    place = parse_place(config.ledger)
    ledger = load_ledger(place, config.ledger_store)
    if not isinstance(ledger, SharedLedger):
        raise UnsupportedError(f"ledgers of the kind {config.ledger_store!r} are not written by several --workers")
    with closing(ledger.open_store(place, Bounds())) as store:
        yield store


class Parent:
    """Runs the workers. For the loop thread.

    Args:
        config: the server's configuration.
        listening: the workers' sockets.
        store: the store of the ledger that the workers write; ``None`` without a ledger.
        reread: rereads the configuration.

    """

    def __init__(
        self,
        config: ServerConfig,
        listening: Listening,
        store: SharedStore | None,
        reread: Callable[[], ServerConfig],
    ) -> None:
        self._count = config.workers
        self._limit = config.decision_timeout
        self._listening = listening
        self._store = store
        self._configuration = Configuration(config, reread)
        self._table = make_table(self._count)
        self._rows = [Row(self._table, self._count, index) for index in range(self._count)]
        self._exchange = Exchange(self._count, listening, self._table)
        self._stopping = False
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._spawned: set[asyncio.Task[None]] = set()

    async def run(self, output: TextIO) -> None:
        """Start the workers, announce that they serve, and wait until a signal ends the server or no worker can start.

        Raises:
            PolicyBridgeError: a worker cannot start.

        """
        loop = asyncio.get_running_loop()
        watch_signals(loop, self._signals, self._begin_reload)
        self._failed: asyncio.Future[None] = loop.create_future()
        keeping = [asyncio.create_task(self._keep(index)) for index in range(self._count)]
        watching = asyncio.create_task(Watch(self._exchange, self._rows, self._limit).run())
        try:
            await self._told(output)
        finally:
            self._stopping = True
            notify("STOPPING=1")
            await self._drain(keeping)
            watching.cancel()

    async def _told(self, output: TextIO) -> None:
        """Wait until all serve, announce it, then wait for a signal."""
        asked = asyncio.create_task(self._signals.get())
        ready = asyncio.create_task(self._all_ready())
        try:
            await _first([asked, ready, self._failed])
            if ready.done():
                leader = ready.result()
                say(f"ready {' '.join(leader.addresses)}", output)
                notify("READY=1", f"STATUS=serves {leader.policies} policies with {self._count} workers")
                await _first([asked, self._failed])
            if self._failed.done():
                await self._failed
        finally:
            asked.cancel()
            ready.cancel()

    async def _all_ready(self) -> Member:
        """Wait until all workers serve; give the first one."""
        while True:
            ready = self._exchange.serving()
            if len(ready) == self._count:
                return ready[0]
            await asyncio.sleep(0.02)

    async def _keep(self, index: int) -> None:
        """Keep a worker running: start another process when one has ended."""
        in_vain = 0
        while not self._stopping:
            member = self._exchange.member(index)
            ending = await member.run([self._table, *self._listening.given(index).values()])
            served = bool(member.addresses)
            await self._bury(member)
            if self._stopping:
                return
            alone = not any(each.addresses for each in self._exchange.others(member))
            if member.error is not None and not served and alone:
                self._fail(member.error)
                return
            in_vain = 0 if served else in_vain + 1
            if in_vain >= _STARTS:
                told = f": {member.error}" if member.error else "; what it said last stands above"
                self._fail(
                    UnavailableError(
                        f"worker {index} ended {in_vain} times before it could serve; the last process {ending}{told}"
                    )
                )
                return
            _LOG.error("%s %s; another process takes its place", member, ending)
            if not served:
                await asyncio.sleep(_LATER)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _bury(self, member: Member) -> None:
        """Clean up after an ended process."""
        self._rows[member.index].leave()
        self._exchange.keep_numbers(member)
        if self._store is not None:
            try:
                await asyncio.to_thread(self._store.interrupt, member.mark)
            except PolicyBridgeError as error:
                _LOG.warning("the ledger could not record that sessions were interrupted: %s", error)
        await self._exchange.release(member, stopping=self._stopping)

    def _begin_reload(self) -> None:
        self._spawn(self._reload())

    async def _reload(self) -> None:
        notify_reloading()
        config = self._configuration.reread()
        self._listening.config = with_reloaded(self._listening.config, config)
        serving = self._exchange.serving()
        level = logging.getLogger().level
        await asyncio.gather(*(each.line.call("reload", config, level) for each in serving), return_exceptions=True)
        notify("READY=1")

    async def _drain(self, keeping: list[asyncio.Task[None]]) -> None:
        self._listening.close()
        self._tell_to_drain()
        ended = asyncio.gather(*keeping)
        again = asyncio.create_task(self._signals.get())
        await _first([ended, again])
        if not ended.done():
            self._tell_to_drain()
        again.cancel()
        await ended
        os.close(self._table)

    def _tell_to_drain(self) -> None:
        for member in self._exchange.members:
            if member is not None and member.ready.is_set():
                self._spawn(member.line.call("drain"))
            elif member is not None:
                # It has no session yet.
                member.kill()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with suppress(PolicyBridgeError):
                await work

        task = asyncio.create_task(run())
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)


async def _first(futures: Sequence["asyncio.Future[Any]"]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
