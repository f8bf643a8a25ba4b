"""Transport `pipe`: compilers that use ML-Compiler-Bridge's pipes, one after another on each base for ever."""

import asyncio
import logging
from typing import Any

from policybridge_core.errors import UnavailableError
from policybridge_server.config import convert_fields
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.mlbridge.pipes.fifos import Fifos, claim
from policybridge_server.mlbridge.pipes.formats import load_format
from policybridge_server.mlbridge.pipes.session import PipeSession, Pool
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)

_RETRY = 0.1


class PipeTransport:
    """A pool of bases; a compile is a session.

    Args:
        address: a ``[[pipe]]`` as TOML gives it, or its short form.

    Raises:
        InvalidError: the address is malformed, or the fallback is not what the compiler reads.
        NotFoundError: there is no such format.

    """

    def __init__(self, address: dict[str, Any] | str) -> None:
        if isinstance(address, str):
            config = PipeConfig.parse(address)
        else:
            config = convert_fields(address, PipeConfig, "[[pipe]] ")
        self._pool = Pool.of(config)
        self._bases: list[_Base] = []

    @property
    def address(self) -> str:
        """``pipe:BASE``, or ``pipe:BASE-{0..N}`` for a pool."""
        config = self._pool.config
        return f"pipe:{config.base}" + ("" if config.count is None else f"-{{0..{config.count - 1}}}")

    async def start(self, host: Host) -> None:
        """Make the FIFOs; those that a dead server left there are replaced."""
        for base in self._pool.config.bases:
            claim(base)
        try:
            for base in self._pool.config.bases:
                self._bases.append(_Base(base, self._pool, host))
        except OSError as error:
            await self.stop(0)
            raise UnavailableError(f"cannot make the FIFOs of {base}: {error.strerror or error}") from error

    async def stop(self, grace: float) -> None:
        """Remove the FIFOs, let running compiles end for ``grace`` seconds, then end their sessions."""
        await asyncio.gather(*(base.stop(grace) for base in self._bases))


class _Base:
    """One base: a session that waits for a compiler, and those that have one.

    Raises:
        OSError: the FIFOs cannot be made.

    """

    def __init__(self, base: str, pool: Pool, host: Host) -> None:
        self._base = base
        self._pool = pool
        self._host = host
        self._format = load_format(pool.config.format)
        self._running: set[PipeSession] = set()
        self._over = asyncio.Event()
        self._stopped = False
        self._wait()

    def _wait(self) -> None:
        self._fifos = Fifos(self._base)
        self._waiting: PipeSession | None = PipeSession(self._fifos, self._pool, self._format, self._host, self)

    def begun(self, session: PipeSession) -> None:
        """Make room for the next compiler."""
        self._running.add(session)
        self._waiting = None
        try:
            if not self._stopped:
                self._wait()
        except OSError as error:
            # The next compiler must not meet the one that has these; without the paths it waits and tries again.
            _LOG.warning("pipe %s: cannot make the FIFOs for the next compile: %s", self._base, error)
            self._fifos.remove()
            self._retry()

    def _retry(self) -> None:
        self._host.loop.call_later(_RETRY, self._renew)

    def _renew(self) -> None:
        try:
            if not self._stopped:
                self._wait()
        except OSError:
            self._retry()

    def gone(self, session: PipeSession) -> None:
        """Forget a session that is over."""
        self._running.discard(session)
        self._over.set()

    async def stop(self, grace: float) -> None:
        self._stopped = True
        if self._waiting is not None:
            self._fifos.remove()
            self._waiting.close()
        try:
            async with asyncio.timeout(grace):
                while self._running:
                    self._over.clear()
                    await self._over.wait()
        except TimeoutError:
            for session in list(self._running):
                session.finish()
