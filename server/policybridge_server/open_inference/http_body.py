"""The bodies of HTTP requests: read up to their limits, and no more of all requests together than the port may hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import web

from policybridge_core.errors import InvalidError, TooLargeError, UnavailableError
from policybridge_server.open_inference.binary import HEADER, MOST_JSON, too_long

BODY: Final = "body"
"""Under this key a request has its body while it is served, a `bytearray`."""

_TURN: Final = 1 << 16
"""Bytes that are read in one turn of the loop; the usual request needs no second one."""


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
    async def held(self, request: web.Request) -> AsyncIterator[None]:
        """Read the body of a request, and hold it while the block runs.

        Raises:
            InvalidError: it is not encoded as its headers say.
            TooLargeError: it is too large; as soon as that is known.
            UnavailableError: the bodies of other requests are.

        """
        limit = self._limit(request)
        self._check(request.content_length or 0, limit)
        body = bytearray()
        try:
            while piece := await _piece(request):
                self._check(len(body) + len(piece), limit)
                self._held += len(piece)
                body += piece
                if self._held > self._most:
                    raise UnavailableError(
                        f"this port holds {self._most} bytes of requests that are not answered yet; try again later"
                    )
                if len(body) > _TURN:
                    # What is compressed, or came while others were served, is there at once: let others have turns.
                    await asyncio.sleep(0)
            request[BODY] = body
            yield
        finally:
            self._held -= len(body)
            # At once: the error of a client that went away refers to this frame, and the frame to the error.
            with suppress(BufferError):
                body.clear()

    def _limit(self, request: web.Request) -> int:
        return self._largest if HEADER in request.headers else min(self._largest, MOST_JSON)

    def _check(self, size: int, limit: int) -> None:
        if size > limit and limit == MOST_JSON:
            raise too_long(size)
        if size > limit:
            raise TooLargeError(f"a body of {size} bytes; at most {limit} are taken")


async def _piece(request: web.Request) -> bytes:
    try:
        return await request.content.readany()
    except web.RequestPayloadError as error:
        raise InvalidError("the body is not encoded as its Content-Encoding or Transfer-Encoding says") from error
