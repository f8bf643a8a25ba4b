"""The scope and size limit of each gRPC method, checked for calls on TCP when their method is looked up.

A call is checked when it begins. A session is one call, so its decisions need no further check.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.access import Access, Scope
from policybridge_server.grpc.calls import Context, abort

_POLICY: Final = "/policybridge.v1.PolicyService/"
_REPOSITORY: Final = "/policybridge.v1.RepositoryService/"
_REPLICATION: Final = "/policybridge.v1.ReplicationService/"
_INFERENCE: Final = "/inference.GRPCInferenceService/"
_HEALTH: Final = "/grpc.health.v1.Health/"

SCOPES: Final[dict[str, Scope | None]] = {
    f"{_POLICY}Evaluate": Scope.EVALUATE,
    f"{_POLICY}Session": Scope.EVALUATE,
    f"{_POLICY}ReportOutcome": Scope.EVALUATE,
    f"{_REPOSITORY}ListPolicies": Scope.READ,
    f"{_REPOSITORY}ShowPolicy": Scope.READ,
    f"{_REPOSITORY}Publish": Scope.PUBLISH,
    f"{_REPOSITORY}PublishWeights": Scope.PUBLISH,
    f"{_REPOSITORY}SetAlias": Scope.PUBLISH,
    f"{_REPOSITORY}Rollout": Scope.PUBLISH,
    f"{_REPOSITORY}EndRollout": Scope.PUBLISH,
    f"{_REPOSITORY}Rollback": Scope.PUBLISH,
    f"{_REPOSITORY}Retire": Scope.ADMIN,
    f"{_REPLICATION}Follow": Scope.FOLLOW,
    f"{_REPLICATION}Download": Scope.FOLLOW,
    f"{_REPLICATION}Replicas": Scope.READ,
    f"{_INFERENCE}ServerLive": None,
    f"{_INFERENCE}ServerReady": None,
    f"{_INFERENCE}ServerMetadata": Scope.READ,
    f"{_INFERENCE}ModelReady": Scope.READ,
    f"{_INFERENCE}ModelMetadata": Scope.READ,
    f"{_INFERENCE}ModelConfig": Scope.READ,
    f"{_INFERENCE}ModelStatistics": Scope.READ,
    f"{_INFERENCE}RepositoryIndex": Scope.READ,
    f"{_INFERENCE}ModelInfer": Scope.EVALUATE,
    f"{_INFERENCE}ModelStreamInfer": Scope.EVALUATE,
    f"{_HEALTH}Check": None,
    f"{_HEALTH}Watch": Scope.READ,
    f"{_HEALTH}List": Scope.READ,
    "/grpc.reflection.v1alpha.ServerReflection/": Scope.READ,
    "/grpc.channelz.v1.Channelz/": Scope.ADMIN,
}
"""Method, or service with a trailing slash → scope; ``None``: no token is needed. Every other method needs ADMIN."""

_WITH_DATA: Final = frozenset(
    (
        *(f"{_POLICY}{name}" for name in ("Evaluate", "Session", "ReportOutcome")),
        *(f"{_REPOSITORY}{name}" for name in ("Publish", "PublishWeights")),
        *(f"{_INFERENCE}{name}" for name in ("ModelInfer", "ModelStreamInfer")),
    )
)
"""Our own methods whose requests carry tensors or files."""

_SMALL: Final = 1 << 20
"""Bytes of a request to our other methods: names, and some numbers."""

_Metadata = Iterable[tuple[str, str | bytes]]


def check_call(access: Access, method: str, metadata: _Metadata) -> None:
    """Check that a client on TCP may call ``method``.

    Args:
        access: of the server.
        method: ``/package.Service/Method``.
        metadata: of the call.

    Raises:
        UnauthenticatedError: it has no token, or one that is not in the file.
        PermissionDeniedError: its token lacks the scope.

    """
    scope = access.scope_of(method)
    if scope is not None:
        access.check([str(value) for name, value in metadata if name == "authorization"], scope)


def request_limit(method: str, limit: int) -> int:
    """Return the bytes of the largest request to ``method``; ``limit`` is that of all methods."""
    is_ours = method in SCOPES or method[: method.rfind("/") + 1] in SCOPES
    return min(limit, _SMALL) if is_ours and method not in _WITH_DATA else limit


class GuardInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """`check_call` for a server of gRPC's own library."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the method's handler, or one that ends the call with the error."""
        handler = await continuation(handler_call_details)
        try:
            if handler is not None:
                check_call(self._access, handler_call_details.method, handler_call_details.invocation_metadata or ())
        except PolicyBridgeError as error:
            return _refusal(error)
        return handler


def _refusal(error: PolicyBridgeError) -> "grpc.RpcMethodHandler[Any, Any]":
    async def refuse(_: Any, context: Context) -> AsyncIterator[Any]:
        await abort(context, error)
        yield

    # A stream's handler reads no request first: a client that sends none is refused as well.
    return grpc.stream_stream_rpc_method_handler(refuse)
