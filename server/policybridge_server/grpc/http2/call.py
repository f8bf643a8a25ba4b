"""A call that a grpc.aio servicer answers: its method as a task, and the context that the servicer sees."""

import asyncio
import inspect
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from policybridge_core.errors import InvalidError, Status
from policybridge_server.grpc.calls import parsed_aside
from policybridge_server.grpc.http2.contract import Metadata
from policybridge_server.grpc.http2.plain_methods import as_async
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.loop import Loop
from policybridge_server.transports.failures import as_error

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]

_AHEAD = 16
_AHEAD_BYTES = 1 << 20
"""Requests in a stream's queue, and their bytes; when it is full, its client must wait."""


class ServicerCall:
    """Runs one method of a servicer; see `Call`.

    Args:
        stream: of the call.
        handler: of the method.
        loop: runs the method's task.

    """

    def __init__(self, stream: Stream, handler: "grpc.RpcMethodHandler[Any, Any]", loop: Loop) -> None:
        self._stream = stream
        self._handler = handler
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queued = self._read_last = 0
        self._context = StreamContext(stream, self._read, handler.response_serializer)
        self._task = loop.spawn(self._run())

    def message(self, data: bytes) -> None:
        """Let the servicer read it."""
        self._requests.put_nowait(data)
        self._queued += len(data)
        if self._requests.qsize() >= _AHEAD or self._queued >= _AHEAD_BYTES:
            self._stream.hold(True)

    def half_closed(self) -> None:
        """Let the servicer read the end."""
        self._requests.put_nowait(None)

    def cancelled(self) -> None:
        """Cancel the task."""
        self._context.is_cancelled = True
        self._task.cancel()

    async def _read(self) -> Any:
        data = await self._requests.get()
        self._release()
        if data is None:
            self._requests.put_nowait(None)
            return _EOF
        self._queued -= len(data)
        self._read_last = len(data)
        if self._requests.qsize() < _AHEAD // 2 and self._queued < _AHEAD_BYTES:
            self._stream.hold(False)
        parse = self._handler.request_deserializer
        aside = self._stream.connection.peer_budget.work.run
        return await parsed_aside(parse, data, aside) if parse else data

    def _release(self) -> None:
        """Let the stream count the request no longer that was read before."""
        self._stream.release(self._read_last)
        self._read_last = 0

    async def _run(self) -> None:
        context = self._context
        try:
            await self._serve()
            self._stream.finish(context.status, context.message, context.trailers)
        except grpc.aio.AbortError:
            self._stream.finish(context.status, context.message, context.trailers)
        except asyncio.CancelledError:
            self._stream.finish(Status.CANCELLED, "the call was cancelled")
        except Exception as error:
            self._fail(error)
        context.ended()

    def _fail(self, error: Exception) -> None:
        context = self._context
        if not context.status:
            self._stream.fail(as_error(error, "a call"))
            return
        # The servicer has set the status before it raised, as generated code's default methods do.
        if not isinstance(error, NotImplementedError):
            as_error(error, "a call")
        self._stream.finish(context.status, context.message, context.trailers)

    async def _serve(self) -> None:
        handler = self._handler
        request = self._each() if handler.request_streaming else await self._one()
        method = _method(handler)
        if handler.response_streaming:
            await self._stream_answers(method(request, self._context))
        else:
            answer = await method(request, self._context)
            self._release()
            await self._context.write(answer)

    async def _stream_answers(self, answers: Any) -> None:
        if inspect.isawaitable(answers):
            await answers
            return
        async for answer in answers:
            await self._context.write(answer)

    async def _one(self) -> Any:
        request = await self._read()
        if request is _EOF:
            raise InvalidError("the call ended without a request")
        return request

    async def _each(self) -> AsyncIterator[Any]:
        while (request := await self._read()) is not _EOF:
            yield request


def _method(handler: "grpc.RpcMethodHandler[Any, Any]") -> Callable[[Any, Any], Any]:
    if handler.request_streaming:
        behaviour = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        behaviour = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return as_async(behaviour, requests=handler.request_streaming, responses=handler.response_streaming)  # type: ignore[arg-type]


class StreamContext:
    """The context of a servicer's call: the methods of ``grpc.aio.ServicerContext``."""

    def __init__(self, stream: Stream, read: Callable[[], Any], serialize: Callable[[Any], bytes] | None) -> None:
        self._stream = stream
        self._serialize = serialize
        self._callbacks: list[Callable[[Any], None]] = []
        self.read = read
        self.status = 0
        self.message = ""
        self.trailers: Metadata = ()
        self.is_cancelled = False
        self.is_done = False

    async def write(self, message: Any) -> None:
        """Send one response; wait while those before it are not sent."""
        await self._stream.all_sent()
        self._stream.send(self._serialize(message) if self._serialize else message)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send the headers now."""
        self._stream.send_headers(metadata)

    def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with an error. It raises when it is called, so that plain functions can use it too."""
        self.status, self.message = code.value[0], details
        self.trailers = trailing_metadata or self.trailers
        raise grpc.aio.AbortError

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with a rich error, as `abort` does."""
        self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Set the trailing metadata."""
        self.trailers = metadata

    def trailing_metadata(self) -> Metadata:
        """Return the trailing metadata."""
        return self.trailers

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status."""
        self.status = code.value[0]

    def set_details(self, details: str) -> None:
        """Set the details of the status."""
        self.message = details

    def code(self) -> int:
        """Return the status so far."""
        return self.status

    def details(self) -> str:
        """Return the details of the status."""
        return self.message

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Give the client's metadata."""
        return tuple(
            (name, _binary(value) if name.endswith("-bin") else value) for name, value in self._stream.headers.metadata
        )

    def peer(self) -> str:
        """Give the client's address; connections over a Unix socket are numbered."""
        return self._stream.connection.peer

    def peer_identities(self) -> None:
        """Clients are not authenticated."""

    peer_identity_key = peer_identities

    def auth_context(self) -> dict[str, Any]:
        """Clients are not authenticated."""
        return {}

    def time_remaining(self) -> float | None:
        """Give the seconds until the client's deadline."""
        return self._stream.time_remaining

    def set_compression(self, compression: object = None) -> None:
        """Answers are small: they are sent uncompressed."""

    disable_next_message_compression = set_compression

    def cancelled(self) -> bool:
        """Whether the client has cancelled the call."""
        return self.is_cancelled

    def done(self) -> bool:
        """Whether the call has ended."""
        return self.is_done

    def is_active(self) -> bool:
        """Whether the call goes on."""
        return not (self.is_done or self.is_cancelled)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` when the call has ended."""
        self._callbacks.append(callback)

    add_callback = add_done_callback

    def ended(self) -> None:
        """Make the callbacks of `add_done_callback`."""
        self.is_done = True
        for callback in self._callbacks:
            callback(self)


def _binary(value: str) -> bytes:
    return b64decode(value + "=" * (-len(value) % 4))
