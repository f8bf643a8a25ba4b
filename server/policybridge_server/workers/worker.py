"""A worker: one of a server's processes, started by the parent."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.config import ServerConfig
from policybridge_server.daemon import make_recorder, make_tracer, prepare_interpreter
from policybridge_server.ending import end_in_time
from policybridge_server.engine.engine import Engine
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.log import start_log
from policybridge_server.loop import Loop
from policybridge_server.output import own_output
from policybridge_server.serving import Daemon, Membership, make_engine
from policybridge_server.systemd import give
from policybridge_server.transports.contract import Host
from policybridge_server.workers.fleet import Answers, Fleet
from policybridge_server.workers.line import Handler, Line, LineClosedError, ask_first
from policybridge_server.workers.table import BEAT_SECONDS, Row
from policybridge_server.workers.welcome import Welcome

_SET_PDEATHSIG: Final = 1
"""prctl(2): the kernel sends this process a signal when its parent dies."""


def main(arguments: Sequence[str]) -> None:
    """Run a worker; ``arguments`` are the number of the parent's process, and the descriptor of the line to it."""
    parent, descriptor = map(int, arguments)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The parent decides; systemd sends signals to all processes of a service. Not SIG_IGN: processes that a
        # policy starts would inherit that.
        signal.signal(number, lambda *_: None)
    prepare_interpreter()
    os.set_inheritable(descriptor, False)
    end = socket.socket(fileno=descriptor)
    with own_output():
        try:
            _run(end, ask_first(end, "join"))
        except PolicyBridgeError as error:
            with suppress(LineClosedError):
                ask_first(end, "failed", error)
    end_in_time()


def _run(end: socket.socket, welcome: Welcome) -> None:
    config = welcome.config
    start_log(config)
    logging.getLogger().setLevel(welcome.log_level)
    _take_sockets(welcome)
    with make_recorder(config, shared=True, drops=welcome.index == 0) as recorder, make_tracer(config) as tracer:
        engine = make_engine(config, recorder, tracer, welcome.policies)
        spin = seconds_awake(config.spin, welcome.count)
        with asyncio.Runner(loop_factory=lambda: Loop(engine.flush, spin, engine.counters)) as runner:
            worker = _Worker(welcome, engine, cast("Loop", runner.get_loop()), recorder)
            runner.run(worker.run(end))
        engine.close()


def seconds_awake(spin: float, workers: int) -> float:
    """Give how long a worker stays awake after a decision if it may for ``spin`` µs; see `Loop` for a single process.

    Workers that stay awake must leave a core to the compilers.
    """
    return spin / 1e6 if len(os.sched_getaffinity(0)) > workers else 0.0


def _take_sockets(welcome: Welcome) -> None:
    for descriptor in (welcome.table, *welcome.sockets.values()):
        os.set_inheritable(descriptor, False)
    give(welcome.sockets)


class _Worker:
    """Serves until the parent stops it, and ends with the parent."""

    def __init__(self, welcome: Welcome, engine: Engine, loop: Loop, recorder: LedgerRecorder | None) -> None:
        self._handlers: dict[str, Handler] = {}
        self._line = Line(self._handlers)
        self._engine = engine
        self._row = Row(welcome.table, welcome.count, welcome.index)
        fleet = Fleet(self._line, loop, engine, welcome)
        membership = Membership(fleet, self._row, self._row, leads=welcome.index == 0)
        self._daemon = Daemon(welcome.config, engine, loop, recorder, membership)

    async def run(self, end: socket.socket) -> None:
        await self._line.open(end)
        serving = asyncio.create_task(self._serve_line())
        try:
            await self._start_up()
        except PolicyBridgeError as error:
            await self._line.call("failed", error)
            serving.cancel()
            return
        beating = asyncio.create_task(self._beat())
        try:
            await self._daemon.signals.get()
        finally:
            self._row.leave()
            await self._daemon.shut_down()
            # Without a loop there are no beats, though the ledger may take a while to be closed.
            with suppress(PolicyBridgeError):
                await self._line.call("leaving")
            beating.cancel()
            serving.cancel()

    async def _beat(self) -> None:
        while True:
            self._row.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def _start_up(self) -> None:
        daemon = self._daemon
        self._row.enter()
        await daemon.start_up(self._answer)
        await self._line.call("ready", daemon.addresses, len(self._engine.repository.policies()))

    def _answer(self, host: Host) -> None:
        """Answer the other processes from now on."""
        answers = Answers(host)
        names = (
            "prepare",
            "drop",
            "take",
            "left",
            "policies",
            "sessions",
            "snapshot",
            "state",
            "report",
            "trials",
            "progress",
            "reread",
            "replicas",
        )
        self._handlers.update({name: getattr(answers, name) for name in names})
        self._handlers.update(drain=self._drain, reload=self._reload)

    async def _serve_line(self) -> None:
        await self._line.serve()
        # Without the parent no process ends this one, and another server may already serve in its place.
        os._exit(1)

    async def _drain(self) -> None:
        self._daemon.signals.put_nowait(signal.SIGTERM)

    async def _reload(self, config: ServerConfig, log_level: int) -> None:
        start_log(config)
        logging.getLogger().setLevel(log_level)
        self._daemon.reloading.take(config)
