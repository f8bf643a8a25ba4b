"""The running gRPC calls, and their end by an error: the one place where errors become gRPC statuses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from policybridge_core.errors import InvalidError, PolicyBridgeError, Status, UnavailableError, UnsupportedError
from policybridge_serdes.limits import LARGE
from policybridge_serdes.protobuf_fields import check_message
from policybridge_server.budget.work import Aside
from policybridge_server.grpc.error_details import message_of, metadata_of
from policybridge_server.transports.failures import as_error
from policybridge_server.transports.running import Running

_STATUS: Final = {status.value[0]: status for status in grpc.StatusCode}

_UNCHECKED: Final = 256
"""Bytes of a request that needs no check before parsing: no name in it can be too long."""

_Message = TypeVar("_Message")

Context = grpc.aio.ServicerContext[Any, Any]
Method: TypeAlias = "Callable[[Any], Any] | WithContext"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True)
class WithContext:
    """A method that is called with the call's context, too."""

    call: Callable[[Any, Context], Any]


class RunningCall(Protocol):
    """A call that a drain waits for."""

    def shut(self) -> None:
        """End the call because the server ends."""


Calls = Running[RunningCall]
"""The calls that run on one transport."""


def parsed(parse: Callable[[bytes], _Message], data: bytes) -> _Message:
    """Return the message that ``parse`` makes of a request's bytes.

    Raises:
        InvalidError: the bytes are not a message of this kind, or a name is too long.
        TooLargeError: the message has too many parts, or a text is too long.

    """
    kind = getattr(parse, "__self__", None)
    if isinstance(kind, type) and issubclass(kind, Message):
        check_message(kind.DESCRIPTOR, data, _UNCHECKED)
    try:
        return parse(data)
    except DecodeError as error:
        raise InvalidError(f"the request cannot be parsed: {error}") from error


async def parsed_aside(parse: Callable[[bytes], _Message], data: bytes, aside: Aside = asyncio.to_thread) -> _Message:
    """Return what `parsed` makes of a request's bytes; a large request is parsed in a thread.

    Raises:
        InvalidError: as `parsed`.
        TooLargeError: as `parsed`.

    """
    return parsed(parse, data) if len(data) <= LARGE else await aside(parsed, parse, data)


class _Task:
    """A call that a task serves."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.is_shut = False

    def shut(self) -> None:
        self.is_shut = True
        if self._task is not None:
            self._task.cancel()


def add_service(
    add: Callable[..., None], methods: Mapping[str, Method], server: grpc.aio.Server, calls: Calls | None
) -> None:
    """Add a service whose methods may raise our errors.

    A method that raises a `PolicyBridgeError` ends its call with that error's status, and any other exception with
    UNKNOWN. A request that cannot be parsed is INVALID_ARGUMENT; gRPC itself would send UNKNOWN and fill the log.

    Args:
        add: the generated function that adds the service.
        methods: name → function that answers the request, or the requests. For an answer of one message, it returns the
            message or a coroutine for it; for a stream of messages, an asynchronous generator.
        server: serves the calls.
        calls: counts the running ones; ``None`` if a drain need not wait for them.

    """
    add(_Servicer(methods), _GuardedServer(server, calls))


class _Servicer:
    """The methods as generated code takes them: as attributes, called with the request and the call's context."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[[Any, Context], Any]:
        method = self._methods.get(name, _refuse)
        if isinstance(method, WithContext):
            return method.call
        plain: Callable[[Any], Any] = method
        return lambda request, _context: plain(request)


def _refuse(_: Any) -> Any:
    # A newer .proto than ours may have the method.
    raise UnsupportedError("this server does not have the method")


class _GuardedServer:
    def __init__(self, server: grpc.aio.Server, calls: Calls | None) -> None:
        self._server = server
        self._calls = calls

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore them: generated code gives the same ones by their names next."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, _Handler]) -> None:
        """Add a service's methods."""
        add_handlers(self._server, self._calls, service, handlers)


def add_handlers(server: grpc.aio.Server, calls: Calls | None, service: str, handlers: Mapping[str, _Handler]) -> None:
    """Add a service by the handlers of its methods, whose errors become statuses; see `add_service`."""
    made = {name: _guarded(handler, calls) for name, handler in handlers.items()}
    # Older versions of grpcio look only at the generic handlers, newer ones at the registered ones first.
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, made),))
    server.add_registered_method_handlers(service, made)  # type: ignore[attr-defined]


def _guarded(handler: _Handler, calls: Calls | None) -> _Handler:
    read, write = handler.request_deserializer, handler.response_serializer
    if handler.response_streaming:
        return _with_responses(handler, calls)
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(_one(handler.stream_unary, None, calls), read, write)
    return grpc.unary_unary_rpc_method_handler(_one(handler.unary_unary, read, calls), None, write)


def _one(method: Any, read: Any, calls: Calls | None) -> Any:
    async def answer(request: Any, context: Context) -> Any:
        async with _mapped(context, calls):
            answer = method(await parsed_aside(read, request) if read else request, context)
            return await answer if isawaitable(answer) else answer

    return answer


def _with_responses(handler: _Handler, calls: Calls | None) -> _Handler:
    method: Any = handler.stream_stream or handler.unary_stream

    async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
        async with _mapped(context, calls):
            async for response in method(request, context):
                yield response

    make = grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
    return make(answers, handler.request_deserializer, handler.response_serializer)


@asynccontextmanager
async def _mapped(context: Context, calls: Calls | None) -> AsyncIterator[None]:
    """Abort the call with the status of the error that its body raises."""
    task = _Task()
    if calls is not None:
        calls.add(task)
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except asyncio.CancelledError:
        if not task.is_shut:
            raise
        await abort(context, UnavailableError("the server shut down before the session ended"))
    except Exception as error:
        if isinstance(error, NotImplementedError) and _says_so(context):
            error = UnsupportedError(str(error) or "this server does not have the method")
        await abort(context, as_error(error, "a call"))
    finally:
        if calls is not None:
            calls.discard(task)


def _says_so(context: Context) -> bool:
    """Whether the servicer has set UNIMPLEMENTED, as generated code's methods do by default before they raise."""
    code = context.code()
    return bool(getattr(code, "value", (code,))[0] == Status.UNIMPLEMENTED)


async def abort(context: Context, error: PolicyBridgeError) -> None:
    """End a call of gRPC's own library with the status of ``error``."""
    await context.abort(_STATUS[error.status], message_of(error), metadata_of(error))
