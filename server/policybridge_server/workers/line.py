"""Calls between two processes of one server, over a socket pair. Both sides call, and both answer."""

import asyncio
import itertools
import pickle
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError, UnknownError

Handler = Callable[..., Awaitable[Any]]
"""Answers one kind of call; its error is raised on the other side, too."""

_LENGTH: Final = 8
_CALL, _CANCEL, _ANSWER, _ERROR = range(4)


class LineClosedError(UnavailableError):
    """The process at the other end has ended."""


def ask_first(end: socket.socket, name: str, *arguments: Any) -> Any:
    """Call the handler ``name`` of the other side before there is a `Line` on this one; wait for the answer.

    Raises:
        LineClosedError: the other side has ended.

    """
    data = pickle.dumps((_CALL, 0, name, arguments))
    try:
        end.sendall(len(data).to_bytes(_LENGTH, "little") + data)
        _, _, answer = pickle.loads(_exactly(end, int.from_bytes(_exactly(end, _LENGTH), "little")))  # noqa: S301
    except OSError as error:
        raise LineClosedError(f"the parent has ended: {error.strerror}") from error
    if isinstance(answer, Exception):
        raise answer
    return answer


def _exactly(end: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            raise LineClosedError("the parent has ended")
        data += part
    return bytes(data)


class Line:
    """One end of a socket pair. For the loop thread.

    The values are pickled: only a process of this server ever has the other end.

    Args:
        handlers: answer the calls of the other side, by their names; calls are begun in their order.

    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, end: socket.socket) -> None:
        """Begin to call over one ``end`` of a socket pair."""
        end.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=end)

    async def serve(self) -> None:
        """Answer calls and take answers, until the other side ends; then cancel the running calls."""
        reader = self._reader
        if reader is None:
            raise LineClosedError("the line is not open")
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    size = int.from_bytes(await reader.readexactly(_LENGTH), "little")
                    self._take(*pickle.loads(await reader.readexactly(size)))  # noqa: S301 - of our own process
        finally:
            self._close()

    def _take(self, kind: int, number: int, *content: Any) -> None:
        if kind == _CALL:
            self._running[number] = asyncio.get_running_loop().create_task(self._answer(number, *content))
        elif kind == _CANCEL:
            if number in self._running:
                self._running[number].cancel()
        else:
            # Without one the caller was cancelled.
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(content[0]) if kind == _ANSWER else future.set_exception(content[0])

    async def _answer(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._send(_ANSWER, number, await self._handlers[name](*arguments))
        except PolicyBridgeError as error:
            self._send(_ERROR, number, error)
        except Exception as error:
            self._send(_ERROR, number, UnknownError(f"{name}: {error!r}"))
        finally:
            self._running.pop(number, None)

    def _send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        if self._writer is None or self._writer.is_closing():
            raise LineClosedError("the other process of the server is gone")
        self._writer.write(len(data).to_bytes(_LENGTH, "little") + data)

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call the handler ``name`` of the other side. A cancellation cancels it there, too.

        Raises:
            LineClosedError: the other side has ended, or ends before it answers.
            PolicyBridgeError: the handler's error.

        """
        number = next(self._numbers)
        future = asyncio.get_running_loop().create_future()
        self._send(_CALL, number, name, arguments)
        self._waiting[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            with suppress(LineClosedError):
                self._send(_CANCEL, number)
            raise
        finally:
            self._waiting.pop(number, None)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        for task in self._running.values():
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LineClosedError("the other process of the server is gone"))
