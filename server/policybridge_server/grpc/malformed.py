"""Requests whose bytes are no message: INVALID_ARGUMENT, where gRPC by itself says UNKNOWN and fills the log."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from policybridge_server.grpc.calls import Context, malformed

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Unary = Callable[[Any, Context], Awaitable[Any]]


def careful(server: grpc.aio.Server) -> grpc.aio.Server:
    """Give what generated code may add a service to; its calls are served by ``server``."""
    return cast("grpc.aio.Server", _Careful(server))


class _Careful:
    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Wait for the same ones by their names, which generated code gives next."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, _Handler]) -> None:
        """Add a service's methods."""
        made = {name: handler if handler.request_streaming else _unary(handler) for name, handler in handlers.items()}
        # Older servers look at the first alone, newer ones at the second first.
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, made),))
        self._server.add_registered_method_handlers(service, made)  # type: ignore[attr-defined]


def _unary(handler: _Handler) -> _Handler:
    answer = cast("_Unary", handler.unary_unary)
    read = cast("Callable[[bytes], Any]", handler.request_deserializer)

    async def careful_answer(data: bytes, context: Context) -> Any:
        try:
            request = read(data)
        except DecodeError as error:
            return await malformed(context, error)
        return await answer(request, context)

    return grpc.unary_unary_rpc_method_handler(careful_answer, None, handler.response_serializer)
