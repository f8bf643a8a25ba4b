"""The PolicyService: Evaluate and Session, in terms of the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final, cast

import grpc.aio

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import add_PolicyServiceServicer_to_server
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes.limits import LARGE
from policybridge_serdes.messages import check_outcome, outcome_from_pb
from policybridge_server.budget.work import Work
from policybridge_server.engine.recorder import Acknowledge, wait_recorded
from policybridge_server.engine.tracing import TRACEPARENT
from policybridge_server.grpc.calls import Calls, Context, Method, WithContext, add_service, parsed
from policybridge_server.grpc.evaluate import Evaluate
from policybridge_server.grpc.http2.contract import Call
from policybridge_server.grpc.http2.request_half import SMALL
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.grpc.session import Caller, SessionCall, client_of
from policybridge_server.grpc.unary import UnaryCall
from policybridge_server.transports.contract import Host
from policybridge_server.transports.failures import as_error

_SERVICE: Final = "/policybridge.v1.PolicyService"


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve PolicyService on ``server``."""
    evaluate = Evaluate(host.opener, host.config.limits)
    methods: dict[str, Method] = {
        "Evaluate": partial(_evaluate, evaluate),
        "ReportOutcome": WithContext(partial(_report, host)),
        "Session": WithContext(partial(_session, host, calls)),
    }
    add_service(add_PolicyServiceServicer_to_server, methods, server, calls)
    if isinstance(server, Http2Server):
        server.add_call(f"{_SERVICE}/Evaluate", lambda stream: UnaryCall(stream, evaluate, calls, host.loop))
        server.add_call(f"{_SERVICE}/ReportOutcome", partial(_report_call, host, calls))
        server.add_call(f"{_SERVICE}/Session", partial(_session_call, host, calls))


def _session_call(host: Host, calls: Calls, stream: Stream) -> SessionCall:
    traceparent = next((value for name, value in stream.headers.metadata if name == TRACEPARENT), "")
    caller = Caller(client_of(stream.connection.peer), _reporter_of(host, stream), stream.connection.peer_budget)
    return SessionCall(stream, host, calls, caller, traceparent)


def _report_call(host: Host, calls: Calls, stream: Stream) -> UnaryCall:
    return UnaryCall(stream, _Reporting(host, _reporter_of(host, stream)), calls, host.loop)


def _reporter_of(host: Host, stream: Stream) -> str:
    return host.access.reporter(_authorization(stream.headers.metadata), stream.connection.peer)


class _Reporting:
    """Keeps the outcome of a session that has ended, or that another process has, without a task."""

    def __init__(self, host: Host, reporter: str) -> None:
        self._host = host
        self._reporter = reporter

    def start(self, request: bytes, call: UnaryCall) -> None:
        """Report, and reply when the outcome is durable; a large request is read in a thread."""
        if len(request) > LARGE:
            call.run(self._aside(request, call.work))
            return

        def acknowledge(error: PolicyBridgeError | None) -> None:
            call.settle(b"" if error is None else error)

        self._read(request)(acknowledge)

    def _read(self, request: bytes) -> Callable[[Acknowledge], None]:
        return _report_of(self._host, parsed(pb.ReportOutcomeRequest.FromString, request), self._reporter)

    async def _aside(self, request: bytes, work: Work) -> bytes:
        await wait_recorded(await work.run(self._read, request))
        return b""


def _authorization(metadata: Iterable[tuple[str, str | bytes]]) -> list[str]:
    return [str(value) for name, value in metadata if name == "authorization"]


def _reporter(host: Host, context: Context) -> str:
    return host.access.reporter(_authorization(context.invocation_metadata() or ()), context.peer())


async def _evaluate(evaluate: Evaluate, request: pb.EvaluateRequest) -> pb.EvaluateResponse:
    return pb.EvaluateResponse.FromString(await evaluate.answer(request.SerializeToString()))


def _report_of(host: Host, request: pb.ReportOutcomeRequest, reporter: str) -> Callable[[Acknowledge], None]:
    check_outcome(request.outcome, host.config.limits)
    outcome = outcome_from_pb(request.outcome)
    return partial(host.opener.engine.report, request.session_id, outcome, reporter=reporter)


async def _report(host: Host, request: pb.ReportOutcomeRequest, context: Context) -> pb.ReportOutcomeResponse:
    await wait_recorded(_report_of(host, request, _reporter(host, context)))
    return pb.ReportOutcomeResponse()


async def _session(
    host: Host, calls: Calls, requests: AsyncIterator[pb.SessionRequest], context: Context
) -> AsyncIterator[pb.SessionResponse]:
    stream = AioStream()
    caller = Caller("", _reporter(host, context), host.doors.peers.of(client_of(context.peer())))
    call = SessionCall(cast("Stream", stream), host, calls, caller)
    async for response in stream.serve(call, requests):
        yield pb.SessionResponse.FromString(response)


class AioStream:
    """The responses of one call of grpc.aio, and whether its requests are read.

    It has the methods of HTTP/2's `Stream`, so that `SessionCall` serves both.
    """

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
