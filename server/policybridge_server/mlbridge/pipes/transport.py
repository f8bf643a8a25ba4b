"""Transport `pipe`: compilers that use ML-Compiler-Bridge's pipes, one after another on each base."""

import asyncio
import logging
from typing import Any

from policybridge_core.errors import UnavailableError
from policybridge_server.config import convert_fields
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.mlbridge.pipes.expected import ExpectedAdvice
from policybridge_server.mlbridge.pipes.fifos import Fifos, claim
from policybridge_server.mlbridge.pipes.formats import load_format
from policybridge_server.mlbridge.pipes.session import PipeSession
from policybridge_server.transports.contract import Host
from policybridge_server.transports.running import Running

_LOG = logging.getLogger(__name__)

_RETRY = 0.1
"""Seconds until FIFOs that could not be made are tried again."""


class PipeTransport:
    """A pool of bases; a compile is a session.

    Args:
        address: a ``[[pipe]]`` as TOML gives it, or its short form.

    Raises:
        InvalidError: the address is malformed, or the fallback does not fit the spec that the compiler reads.
        NotFoundError: there is no such format.

    """

    def __init__(self, address: dict[str, Any] | str) -> None:
        if isinstance(address, str):
            self._config = PipeConfig.parse(address)
        else:
            self._config = convert_fields(address, PipeConfig, "[[pipe]] ")
        # Made only to be checked: each session makes its own.
        ExpectedAdvice(self._config, load_format(self._config.format))
        self._bases: list[_Base] = []

    @property
    def address(self) -> str:
        """``pipe:BASE``, or ``pipe:BASE-{0..N}`` for a pool."""
        config = self._config
        return f"pipe:{config.base}" + ("" if config.count is None else f"-{{0..{config.count - 1}}}")

    async def start(self, host: Host) -> None:
        """Make the FIFOs; replace those of a dead server."""
        for base in self._config.bases:
            claim(base)
        try:
            for base in self._config.bases:
                self._bases.append(_Base(base, self._config, host))
        except OSError as error:
            await self.stop(0)
            raise UnavailableError(f"cannot make the FIFOs of {base}: {error.strerror or error}") from error

    async def stop(self, grace: float) -> None:
        """Remove the FIFOs, let running compiles end for ``grace`` seconds, then end their sessions."""
        await asyncio.gather(*(base.stop(grace) for base in self._bases))


class _Base:
    """One base: a session that waits for a compiler, and the sessions with one.

    Raises:
        OSError: the FIFOs cannot be made.

    """

    def __init__(self, base: str, config: PipeConfig, host: Host) -> None:
        self._base = base
        self._config = config
        self._host = host
        self._running: Running[PipeSession] = Running()
        self._stopped = False
        self._wait()

    def _wait(self) -> None:
        self._fifos = fifos = Fifos(self._base, self._host.access.sockets)
        self._waiting: PipeSession | None = PipeSession(
            fifos, self._config, self._host, self._started, self._running.discard
        )

    def _started(self, session: PipeSession) -> None:
        """Make room for the next compiler."""
        self._running.add(session)
        self._waiting = None
        try:
            if not self._stopped:
                self._wait()
        except OSError as error:
            # The next compiler must not open the FIFOs of this one. Without the paths it waits for new ones.
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

    async def stop(self, grace: float) -> None:
        self._stopped = True
        if self._waiting is not None:
            self._fifos.remove()
            self._waiting.close()
        await self._running.drain(grace, PipeSession.finish)
