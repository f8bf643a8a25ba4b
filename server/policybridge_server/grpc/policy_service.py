"""The PolicyService: Evaluate and Session, in terms of the engine."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Final, cast

import grpc.aio

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server
from policybridge_serdes.messages import outcome_from_pb
from policybridge_server.engine.recorder import wait_recorded
from policybridge_server.grpc.aio_stream import AioStream
from policybridge_server.grpc.calls import Calls, Context, guarded
from policybridge_server.grpc.evaluate import Evaluate
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.grpc.session import SessionCall
from policybridge_server.grpc.unary import UnaryCall
from policybridge_server.transports.contract import Host

_SERVICE: Final = "/policybridge.v1.PolicyService"


class PolicyServicer(PolicyServiceServicer):
    """Serves one transport.

    Args:
        host: who answers.
        evaluate: answers the calls of Evaluate.
        calls: those that run.

    """

    def __init__(self, host: Host, evaluate: Evaluate, calls: Calls) -> None:
        self._host = host
        self._evaluate = evaluate
        self._calls = calls

    async def ReportOutcome(  # noqa: N802
        self,
        request: pb.ReportOutcomeRequest,
        _context: Context,
    ) -> pb.ReportOutcomeResponse:
        """Keep the outcome of a session that is over, or that another process holds."""
        outcome = outcome_from_pb(request.outcome)
        await wait_recorded(partial(self._host.opener.engine.report, request.session_id, outcome))
        return pb.ReportOutcomeResponse()

    async def Evaluate(self, request: pb.EvaluateRequest, _context: Context) -> pb.EvaluateResponse:  # noqa: N802
        """Answer one observation without a session."""
        return pb.EvaluateResponse.FromString(await self._evaluate.answer(request.SerializeToString()))

    async def Session(  # noqa: N802
        self,
        requests: AsyncIterator[pb.SessionRequest],
        _context: Context,
    ) -> AsyncIterator[pb.SessionResponse]:
        """Serve one compilation."""
        stream = AioStream()
        call = SessionCall(cast("Stream", stream), self._host, self._calls)
        async for response in stream.serve(call, requests):
            yield pb.SessionResponse.FromString(response)


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve PolicyService on ``server``."""
    evaluate = Evaluate(host.opener)
    add_PolicyServiceServicer_to_server(PolicyServicer(host, evaluate, calls), guarded(server, calls))
    if isinstance(server, Http2Server):
        server.add_call(f"{_SERVICE}/Evaluate", lambda stream: UnaryCall(stream, evaluate, calls, host.loop))
        server.add_call(f"{_SERVICE}/Session", lambda stream: SessionCall(stream, host, calls))
