"""Inference: requests of the protocol, answered by the engine. One for all ways in."""

import asyncio
from typing import Final

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import SessionOptions
from policybridge_serdes.values import Row
from policybridge_server.engine.engine import Session
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.grpc.field_error import FieldError
from policybridge_server.open_inference.asked import Asked, Step, read_request
from policybridge_server.open_inference.evaluation import evaluate
from policybridge_server.open_inference.plan import Plan
from policybridge_server.open_inference.sequences import Sequence, Sequences, acknowledge
from policybridge_server.open_inference.served import Served, ServedVersions
from policybridge_server.open_inference.statistics import Stopwatch
from policybridge_server.transports.contract import Host

_FORGET_SECONDS: Final = 60.0


def shared_inference(host: Host) -> "Inference":
    """Give the one inference of a server: a sequence's requests may come over any of the transports."""
    return host.shared(Inference, lambda: Inference(host.opener, host.config.sequence_idle))


class Inference:
    """For the loop thread.

    Args:
        opener: to the engine.
        idle: seconds without a request after which a sequence ends.

    """

    def __init__(self, opener: SessionOpener, idle: float) -> None:
        self.served = ServedVersions()
        self._opener = opener
        self._engine = opener.engine
        self._sequences = Sequences(idle)
        self._forgetting: asyncio.TimerHandle | None = None

    async def infer(self, message: pb.ModelInferRequest) -> pb.ModelInferResponse:
        """Answer a request; ``message`` is spent afterwards.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        watch = Stopwatch()
        asked = read_request(message)
        if asked.step is not None:
            return await self._answer_step(asked, asked.step, watch)
        loaded = await self._opener.version(asked.reference)
        self._opener.check_open()
        served = self.served.of(loaded)
        try:
            return await self._answer(asked, loaded, served, watch)
        except PolicyBridgeError:
            served.statistics.fail(watch)
            raise

    async def _answer(
        self, asked: Asked, loaded: LoadedVersion, served: Served, watch: Stopwatch
    ) -> pb.ModelInferResponse:
        plan = self._plan(asked, loaded, served)
        rows = plan.make_rows(asked.payloads)
        watch.is_read()
        advices = await evaluate(self._engine, loaded, plan.batcher, rows, asked.options)
        watch.is_evaluated()
        response = plan.respond(asked.id, advices)
        served.statistics.add(len(rows), watch)
        return response

    def _plan(self, asked: Asked, loaded: LoadedVersion, served: Served) -> Plan:
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(_FORGET_SECONDS, self._forget)
        return served.plan(asked.form, loaded, self._engine.schedule)

    def _forget(self) -> None:
        self._forgetting = None
        if self.served.forget_unused():
            self._forgetting = asyncio.get_running_loop().call_later(_FORGET_SECONDS, self._forget)

    async def _answer_step(self, asked: Asked, step: Step, watch: Stopwatch) -> pb.ModelInferResponse:
        # Found before anything is waited for, so that a sequence's requests stay in their order.
        sequence = self._sequences.find(asked, step)
        async with sequence.turn:
            watch.is_due()
            if step.start:
                await self._begin(sequence, asked, step)
            session = sequence.session(asked.reference.version)
            served = self.served.of(session.loaded)
            try:
                response = await self._ask(sequence, session, asked, watch)
            except PolicyBridgeError:
                served.statistics.fail(watch)
                raise
            if step.end:
                try:
                    await acknowledge(session)
                finally:
                    self._sequences.end(sequence)
            return response

    async def _begin(self, sequence: Sequence, asked: Asked, step: Step) -> None:
        options = SessionOptions(options=asked.options, labels={"sequence_id": step.id})
        try:
            sequence.begin(await self._opener.open(asked.reference, options, sequence.answers))
        except BaseException:
            self._sequences.end(sequence)
            raise

    async def _ask(self, sequence: Sequence, session: Session, asked: Asked, watch: Stopwatch) -> pb.ModelInferResponse:
        served = self.served.of(session.loaded)
        plan = self._plan(asked, session.loaded, served)
        row = _only(plan.make_rows(asked.payloads))
        session.context(asked.options.get("context", session.view.context))
        watch.is_read()
        try:
            advice = await sequence.ask(session, plan.signature, row)
        except BaseException:
            # Nobody knows what the policy made of it: as with every session, that was its end.
            self._sequences.end(sequence)
            raise
        watch.is_evaluated()
        response = plan.respond(asked.id, [advice])
        response.parameters["session_id"].string_param = session.view.id
        served.statistics.add(1, watch)
        return response


def _only(rows: list[Row]) -> Row:
    if len(rows) != 1:
        raise FieldError("inputs", f"a batch of {len(rows)} observations; a sequence takes one at a time")
    return rows[0]
