"""The PolicyService: Evaluate and Session, in terms of the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import lru_cache, partial

import grpc.aio

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceServicer, add_PolicyServiceServicer_to_server
from policybridge_serdes import (
    Outcome,
    SerDes,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    load_serdes,
)
from policybridge_serdes.errors import InvalidError, PolicyBridgeError, PreconditionError, TooLargeError
from policybridge_serdes.protobuf import signature_from_pb, spec_from_pb
from policybridge_server.engine.engine import Session
from policybridge_server.engine.gate import Gate
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.recorder import Reported
from policybridge_server.transports.contract import Host
from policybridge_server.transports.grpc_calls import Calls, Context
from policybridge_server.transports.grpc_messages import options_from_pb, reference_from_pb, version_to_pb

_Advice = tuple[Values, float | None]


class _Answer:
    """A sink for one decision at a time: each is awaited."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[_Advice] | None = None

    def ask(self, session: Session, row: Values) -> "asyncio.Future[_Advice]":
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
        gate: opens sessions.
        limit: largest observation in bytes.
        calls: those that run.

    """

    def __init__(self, gate: Gate, limit: int, calls: Calls) -> None:
        self.calls = calls
        self._gate = gate
        self._limit = limit
        self._serdes = lru_cache(maxsize=16)(load_serdes)

    async def ReportOutcome(  # noqa: N802
        self, request: pb.ReportOutcomeRequest, context: Context
    ) -> pb.ReportOutcomeResponse:
        """Keep the outcome of a session that is over, or that somebody else holds."""
        async with self.calls.mapped(context):
            await _kept(partial(self._gate.engine.report, request.session_id, _outcome(request.outcome)))
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
        signature = Signature(layout, _advice_spec(request, await self._gate.version(reference)))
        answer = _Answer()
        session = await self._gate.open(reference, SessionOptions(), answer)
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
            session = await self._gate.open(reference_from_pb(opened.policy), options_from_pb(opened), answer)
            try:
                steps = _Steps(
                    session, answer, self._signature(opened.signature), self._serdes(opened.serdes or "bitstream")
                )
                yield _opened(session, steps.ignored)
                async for request in requests:
                    response = await steps.take(request)
                    if response is not None:
                        yield response
                if session.recorded:
                    # The call's OK acknowledges the session's end.
                    await _kept(partial(session.report, None))
            finally:
                session.close()

    def _signature(self, message: tensor_pb2.Signature) -> Signature:
        signature = signature_from_pb(message)
        if signature.features.size > self._limit:
            raise TooLargeError(f"observations of {signature.features.size} bytes; at most {self._limit} are taken")
        return signature


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve PolicyService on ``server``."""
    servicer = PolicyServicer(host.gate, host.config.max_observation_bytes, calls)
    add_PolicyServiceServicer_to_server(servicer, server)


class _Steps:
    """The messages of one open session."""

    def __init__(self, session: Session, answer: _Answer, signature: Signature, serdes: SerDes) -> None:
        self.ignored = session.bind(signature)
        self._session = session
        self._version = session.policy.version
        self._answer = answer
        self._features = serdes.codec(signature.features)
        self._advice = serdes.codec(signature.advice_layout)
        self._step = 0
        self._last: pb.SessionResponse | None = None

    async def take(self, request: pb.SessionRequest) -> pb.SessionResponse | None:
        """Take one message; give the answer where it has one."""
        kind = request.WhichOneof("message")
        if kind == "observation":
            return await self._observation(request.observation)
        if kind == "context":
            self._session.view.context = request.context.name
            return None
        if kind == "outcome":
            await _kept(partial(self._session.report, _outcome(request.outcome)))
            return pb.SessionResponse(outcome_recorded=pb.OutcomeRecorded())
        known = "`observation`, `context` and `outcome`"
        raise PreconditionError(f"after `open` come {known}, not {kind or 'an empty message'}")

    async def _observation(self, observation: pb.Observation) -> pb.SessionResponse:
        if observation.step == self._step and self._last is not None:
            return self._last
        if observation.step != self._step + 1:
            raise PreconditionError(f"step {observation.step} came; {self._step + 1} is next, or {self._step} again")
        advice, chance = await self._answer.ask(self._session, self._features.decode(observation.values))
        self._step += 1
        encoded = self._advice.encode(advice)
        decision = pb.Decision(step=self._step, version=self._version, advice=encoded, log_probability=chance)
        self._last = pb.SessionResponse(decision=decision)
        return self._last


async def _kept(report: Callable[[Reported], None]) -> None:
    """Wait until the ledger holds what ``report`` reports."""
    kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reported(error: PolicyBridgeError | None) -> None:
        if kept.done():
            return
        if error is None:
            kept.set_result(None)
        else:
            kept.set_exception(error)

    report(reported)
    await kept


def _outcome(message: pb.Outcome) -> Outcome:
    return Outcome(dict(message.values), message.status)


def _advice_spec(request: pb.EvaluateRequest, loaded: LoadedVersion) -> TensorSpec:
    if request.HasField("advice_spec"):
        return spec_from_pb(request.advice_spec)
    advice = loaded.signature.advice
    if advice is None:
        raise InvalidError(f"{loaded.stored} gives whatever advice is asked for: say which in `advice_spec`")
    return advice


def _opened(session: Session, ignored: tuple[str, ...]) -> pb.SessionResponse:
    opened = pb.Opened(session_id=session.view.id, policy=version_to_pb(session.policy), ignored_features=ignored)
    return pb.SessionResponse(opened=opened)
