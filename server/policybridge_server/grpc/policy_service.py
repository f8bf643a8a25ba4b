"""The PolicyService: Evaluate and Session, in terms of the engine."""

import asyncio
from collections.abc import AsyncIterator
from functools import lru_cache, partial
from typing import cast

import grpc.aio

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import Outcome, SessionOptions, Signature, TensorSpec, Values, load_serdes
from policybridge_serdes.protobuf import spec_from_pb
from policybridge_serdes.values import Row
from policybridge_server.engine.engine import Session
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.recorder import wait_recorded
from policybridge_server.grpc.calls import Calls, Context
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.grpc.messages import (
    options_from_pb,
    outcome_from_pb,
    reference_from_pb,
    version_to_pb,
)
from policybridge_server.grpc.session import SessionCall
from policybridge_server.grpc.session_messages import RECORDED, Observation, SessionMessages
from policybridge_server.transports.contract import Host

_Advice = tuple[Values, float | None]


class _Answer:
    """A sink for one decision at a time: each is awaited."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[_Advice] | None = None

    def ask(self, session: Session, row: Row) -> "asyncio.Future[_Advice]":
        """Submit ``row`` and give the future of its advice."""
        self._future = self._loop.create_future()
        session.submit(row)
        return self._future

    def answer(self, advice: Values, log_probability: float | None) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result((advice, log_probability))

    def fail(self, error: PolicyBridgeError) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


class PolicyServicer(PolicyServiceServicer):
    """Serves one port.

    Args:
        opener: opens sessions.
        limit: largest observation in bytes.
        calls: those that run.

    """

    def __init__(self, opener: SessionOpener, limit: int, calls: Calls) -> None:
        self.calls = calls
        self._opener = opener
        self._limit = limit
        self._serdes = lru_cache(maxsize=16)(load_serdes)

    async def ReportOutcome(  # noqa: N802
        self, request: pb.ReportOutcomeRequest, context: Context
    ) -> pb.ReportOutcomeResponse:
        """Keep the outcome of a session that is over, or that somebody else holds."""
        async with self.calls.mapped(context):
            await wait_recorded(
                partial(self._opener.engine.report, request.session_id, outcome_from_pb(request.outcome))
            )
            return pb.ReportOutcomeResponse()
        raise AssertionError("abort always raises")

    async def Evaluate(self, request: pb.EvaluateRequest, context: Context) -> pb.EvaluateResponse:  # noqa: N802
        """Answer one observation without a session."""
        async with self.calls.mapped(context):
            return await self._evaluate(request)
        raise AssertionError("abort always raises")

    async def _evaluate(self, request: pb.EvaluateRequest) -> pb.EvaluateResponse:
        form = request.WhichOneof("observation")
        if form is None:
            raise InvalidError("the request has neither `tensors` nor `encoded`: there is no observation")
        typed = form == "tensors"
        serdes = self._serdes("protobuf" if typed else request.encoded.serdes)
        layout, values = serdes.decode(request.tensors.SerializeToString() if typed else request.encoded.data)
        reference = reference_from_pb(request.policy)
        loaded = await self._opener.version(reference)
        signature = Signature(layout, _advice_spec(request, loaded))
        loaded.keep(signature, self._opener.engine.schedule)
        answer = _Answer()
        session = await self._opener.open(reference, SessionOptions(), answer)
        session.leave_unrecorded()
        try:
            session.bind(signature)
            advice, _ = await answer.ask(session, values)
        finally:
            session.close()
        data, policy = serdes.encode(advice, signature.advice_layout), version_to_pb(session.policy)
        if typed:
            return pb.EvaluateResponse(policy=policy, tensors=tensor_pb2.DescribedTensors.FromString(data))
        encoded = tensor_pb2.EncodedTensors(serdes=request.encoded.serdes, data=data)
        return pb.EvaluateResponse(policy=policy, encoded=encoded)

    async def Session(  # noqa: N802
        self, requests: AsyncIterator[pb.SessionRequest], context: Context
    ) -> AsyncIterator[pb.SessionResponse]:
        """Serve one compilation."""
        async with self.calls.mapped(context):
            first = await anext(requests, None)
            if first is None or first.WhichOneof("message") != "open":
                raise PreconditionError("a session's first message is `open`")
            answer = _Answer()
            opened = first.open
            session = await self._opener.open(reference_from_pb(opened.policy), options_from_pb(opened), answer)
            try:
                steps = _Awaited(session, answer, opened, self._limit)
                yield steps.opened
                async for request in requests:
                    response = await steps.take(request)
                    if response is not None:
                        yield response
                if session.recorded:
                    # The call's OK acknowledges the session's end.
                    await wait_recorded(partial(session.report, None))
            finally:
                session.close()


def add_to_server(server: grpc.aio.Server | Http2Server, host: Host, calls: Calls) -> None:
    """Serve PolicyService on ``server``."""
    limit = host.config.max_observation_bytes
    add_PolicyServiceServicer_to_server(PolicyServicer(host.opener, limit, calls), cast("grpc.aio.Server", server))
    if isinstance(server, Http2Server):
        server.add_call("/policybridge.v1.PolicyService/Session", lambda stream: SessionCall(stream, host, calls))


class _Awaited:
    """The messages of one open session, whose answers are awaited."""

    def __init__(self, session: Session, answer: _Answer, opened: pb.Open, limit: int) -> None:
        self._session = session
        self._answer = answer
        self._steps = SessionMessages(session, opened, limit)

    @property
    def opened(self) -> pb.SessionResponse:
        """The answer to `open`."""
        return self._steps.opened

    async def take(self, request: pb.SessionRequest) -> pb.SessionResponse | None:
        """Take one message; give the answer where it has one."""
        taken = self._steps.read(request)
        if isinstance(taken, Outcome):
            await wait_recorded(partial(self._session.report, taken))
            return RECORDED
        if isinstance(taken, Observation):
            return self._steps.decision(*await self._answer.ask(self._session, taken.row))
        return taken


def _advice_spec(request: pb.EvaluateRequest, loaded: LoadedVersion) -> TensorSpec:
    if request.HasField("advice_spec"):
        return spec_from_pb(request.advice_spec)
    advice = loaded.signature.advice
    if advice is None:
        raise InvalidError(f"{loaded.stored} gives whatever advice is asked for: say which in `advice_spec`")
    return advice
