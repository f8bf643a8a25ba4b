"""The bodies of HTTP requests: read up to their limits, and no more of all requests together than the port may hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import hdrs, web

from policybridge_core.errors import InvalidError, TooLargeError, UnavailableError
from policybridge_server.budget import PEER, Budget, PeerBudget
from policybridge_server.open_inference.binary import HEADER, MOST_JSON, too_long
from policybridge_server.transports.unpacking import WINDOW_BITS, Unpacking, pieces

BODY: Final = "body"
"""Under this key a request has its body while it is served, a `bytearray`."""

_TURN: Final = 1 << 16
"""Bytes that are read in one turn of the loop; the usual request needs no second one."""

_IDENTITY: Final = "identity"
_MISENCODED: Final = "the body is not encoded as its Content-Encoding or Transfer-Encoding says"


class Bodies:
    """The bodies of all requests of one port that are not answered yet.

    Args:
        largest: bytes of one body, unpacked.

    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._most = 2 * largest
        self._held = 0

    @asynccontextmanager
    async def held(self, request: web.Request, peer: PeerBudget) -> AsyncIterator[None]:
        """Read the body of a request, and hold it while the block runs; it counts in the budget of its ``peer``.

        Raises:
            InvalidError: its encoding is not that of its headers.
            TooLargeError: it is too large; as soon as that is known.
            UnavailableError: the bodies of other requests are too large in total.

        """
        limit, encoding = self._limit(request), _encoding(request)
        self._check(request.content_length or 0, limit)
        parts, counted, budget = [bytearray()], 0, Budget(2 * self._most, peer.memory)
        try:
            async for size in self._read(request, parts, limit, encoding, peer):
                counted += size
                self._hold(size)
                _take(budget, size)
            request[BODY], request[PEER] = parts[-1], peer
            yield
        finally:
            self._held -= counted
            budget.hold(0)
            for part in parts:
                # At once: the error of a client that went away refers to this frame, and the frame to the error.
                with suppress(BufferError):
                    part.clear()
            budget.close()

    async def _read(
        self, request: web.Request, parts: list[bytearray], limit: int, encoding: str, peer: PeerBudget
    ) -> AsyncIterator[int]:
        """Read the body into the last of ``parts``; give the bytes that each step has added."""
        body = parts[0]
        while piece := await _piece(request):
            self._check(len(body) + len(piece), limit)
            body += piece
            yield len(piece)
            if len(body) > _TURN:
                # Arrived bytes are read at once: give other clients turns.
                await asyncio.sleep(0)
        if encoding != _IDENTITY and body:
            parts.append(bytearray())
            unpacking = Unpacking(encoding, pieces(body), parts[-1].extend, limit, "the body")
            while not unpacking.done:
                # In a thread, and in steps: some KB may be some hundred MB when they are unpacked.
                yield await _stepped(peer, unpacking)

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._most:
            raise UnavailableError(
                f"this port holds {self._most} bytes of requests that are not answered yet; try again later"
            )

    def _limit(self, request: web.Request) -> int:
        return self._largest if HEADER in request.headers else min(self._largest, MOST_JSON)

    def _check(self, size: int, limit: int) -> None:
        if size > limit and limit == MOST_JSON:
            raise too_long(size)
        if size > limit:
            raise TooLargeError(f"a body of {size} bytes; at most {limit} are taken")


def _take(budget: Budget, size: int) -> None:
    try:
        budget.take(size)
    except TooLargeError as error:
        raise UnavailableError(str(error)) from error


async def _piece(request: web.Request) -> bytes:
    try:
        return await request.content.readany()
    except web.RequestPayloadError as error:
        raise InvalidError(_MISENCODED) from error


async def _stepped(peer: PeerBudget, unpacking: Unpacking) -> int:
    try:
        return await peer.work.run(unpacking.step)
    except InvalidError as error:
        raise InvalidError(_MISENCODED) from error


def _encoding(request: web.Request) -> str:
    encoding = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, [])).strip().lower() or _IDENTITY
    if encoding != _IDENTITY and encoding not in WINDOW_BITS:
        raise InvalidError(f"a body with the Content-Encoding {encoding[:100]!r}; taken are {', '.join(WINDOW_BITS)}")
    return encoding
