"""The daemon: start up, serve, shut down."""

import asyncio
import logging
import signal
import sys

from policybridge_serdes import PolicyReference
from policybridge_serdes.errors import PolicyBridgeError
from policybridge_server.config import ServerConfig
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.gate import Gate
from policybridge_server.repository import Repository
from policybridge_server.transports.contract import Host, Transport, load_transport
from policybridge_server.turns import TurnSelector

_LOG = logging.getLogger(__name__)


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends running sessions at once.

    Raises:
        PolicyBridgeError: a repository or an address cannot be used.

    """
    engine = Engine(Repository(config.repository), allow_python=config.allow_python)
    turns = TurnSelector(engine.flush)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        runner.run(_Daemon(config, engine, turns).run())
    engine.close()


class _Daemon:
    def __init__(self, config: ServerConfig, engine: Engine, turns: TurnSelector) -> None:
        self._config = config
        self._engine = engine
        self._turns = turns
        self._transports = [
            *(load_transport("grpc", address) for address in config.grpc),
            *(load_transport("socket", str(path)) for path in config.socket),
        ]

    async def run(self) -> None:
        self._signals = self._watch_signals()
        self._engine.attach(asyncio.get_running_loop().call_soon_threadsafe)
        self._preload()
        gate = Gate(self._engine)
        started = await self._listen(Host(gate, self._turns, self._config))
        try:
            sys.stdout.write(f"ready {' '.join(transport.address for transport in started)}\n")
            sys.stdout.flush()
            await self._signals.get()
        finally:
            gate.drain()
            await self._drain(started)

    def _watch_signals(self) -> "asyncio.Queue[signal.Signals]":
        signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
        return signals

    def _preload(self) -> None:
        """Load what new sessions will ask for; a policy that cannot be loaded says why when it is asked for."""
        for name in self._engine.repository.policies():
            try:
                loaded = self._engine.load(PolicyReference(name))
                _LOG.info("loaded %s: %s", loaded.stored, loaded.probe)
            except PolicyBridgeError as error:
                _LOG.warning("policy %s is not served: %s", name, error)

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
