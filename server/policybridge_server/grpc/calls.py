"""The gRPC calls that run: how they end, by themselves, by an error, or because the server does."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from policybridge_core.errors import InvalidError, PolicyBridgeError, Status
from policybridge_server.grpc.error_details import message_of, metadata_of

_LOG = logging.getLogger(__name__)

_LAST_WORDS = 5.0
"""Seconds for calls that are ended to tell their clients."""

_STATUS = {status.value[0]: status for status in grpc.StatusCode}

Context = grpc.aio.ServicerContext[Any, Any]


class Ending(Protocol):
    """A session that is no task."""

    def shut(self) -> None:
        """End it: the server does."""
        ...


class Calls:
    """The calls that run; the one place where our errors turn into gRPC statuses."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._sessions: set[Ending] = set()
        self._ended = asyncio.Event()
        self._ending = False

    @asynccontextmanager
    async def mapped(self, context: Context) -> AsyncIterator[None]:
        """Abort the call with the status of the error that its body raises."""
        task = asyncio.current_task()
        self._running.update({task} if task else ())
        try:
            yield
        except PolicyBridgeError as error:
            await _abort(context, error)
        except DecodeError as error:
            await malformed(context, error)
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            if not self._ending:
                raise
            await context.abort(_STATUS[Status.UNAVAILABLE], "the server shut down before the session ended")
        except Exception as error:
            await _abort_unknown(context, error)
        finally:
            self._running.difference_update({task} if task else ())
            self._ended.set()

    def began(self, session: Ending) -> None:
        """Count a session that is no task."""
        self._sessions.add(session)

    def ended(self, session: Ending) -> None:
        """Count it no more; twice is once."""
        self._sessions.discard(session)
        self._ended.set()

    async def drain(self, grace: float) -> None:
        """Wait ``grace`` seconds for all calls to end, then end them with UNAVAILABLE."""
        await self._none_left(grace)
        self._ending = True
        for task in self._running:
            task.cancel()
        for session in list(self._sessions):
            session.shut()
        await self._none_left(_LAST_WORDS)

    async def _none_left(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running or self._sessions:
                    self._ended.clear()
                    await self._ended.wait()


async def malformed(context: Context, error: DecodeError) -> None:
    """Abort a call whose request is no message."""
    await _abort(context, InvalidError(f"the request cannot be read: {error}"))


async def _abort(context: Context, error: PolicyBridgeError) -> None:
    await context.abort(_STATUS[error.status], message_of(error), metadata_of(error))


async def _abort_unknown(context: Context, error: Exception) -> None:
    _LOG.error("a call failed", exc_info=error)
    await context.abort(_STATUS[Status.UNKNOWN], f"the server failed: {error!r}")
