"""A stream of grpc.aio with the interface of HTTP/2's streams, so that `SessionCall` serves both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.http2.contract import Call
from policybridge_server.grpc.http2.request_half import SMALL
from policybridge_server.transports.failures import as_error


class AioStream:
    """The responses of one call, and whether its requests are read; with the methods of `Stream`."""

    def __init__(self) -> None:
        self._responses: asyncio.Queue[bytes | PolicyBridgeError | None] = asyncio.Queue()
        self._reading = asyncio.Event()
        self._reading.set()

    def send(self, message: bytes) -> None:
        """Send one response message."""
        self._responses.put_nowait(message)

    def hold(self, holding: bool) -> None:
        """Let the peer wait, or not, because messages of it do."""
        if holding:
            self._reading.clear()
        else:
            self._reading.set()

    def release(self, size: int) -> None:
        """Do nothing: gRPC's own library counts messages."""

    def keep(self, size: int) -> bool:
        """Say whether the call may keep an answer of ``size`` bytes: a small one, because nothing counts here."""
        return size <= SMALL

    def finish(self, status: int) -> None:  # noqa: ARG002
        """End the call with OK, after all messages."""
        self._responses.put_nowait(None)

    def fail(self, error: PolicyBridgeError) -> None:
        """End the call with an error."""
        self._responses.put_nowait(error)

    async def serve(self, call: Call, requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        """Let ``call`` take the requests, and give its responses.

        Raises:
            PolicyBridgeError: the call fails with it.

        """
        reading = asyncio.create_task(self._read(call, requests))
        try:
            while (response := await self._responses.get()) is not None:
                if isinstance(response, PolicyBridgeError):
                    raise response
                yield response
        finally:
            reading.cancel()
            call.cancelled()

    async def _read(self, call: Call, requests: AsyncIterator[Any]) -> None:
        try:
            async for request in requests:
                await self._reading.wait()
                call.message(request.SerializeToString())
            call.half_closed()
        except Exception as error:
            self.fail(as_error(error, "a call"))
