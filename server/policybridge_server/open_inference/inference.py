"""Inference: requests of the protocol, answered by the engine. One for all transports."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import SessionOptions, Values
from policybridge_serdes.limits import LARGE, MessageLimits
from policybridge_serdes.values import Row
from policybridge_server.budget.work import Work
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.session import Session
from policybridge_server.engine.single import Evaluation, awaited
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.grpc.unary import UnaryCall
from policybridge_server.open_inference.plan import InferPlan
from policybridge_server.open_inference.request import InferRequest, RequestReader, SequenceStep, parsed_request
from policybridge_server.open_inference.sequences import Sequence, Sequences, finish
from policybridge_server.open_inference.statistics import Stopwatch, VersionState, VersionStates
from policybridge_server.transports.contract import Host

_DROP_SECONDS: Final = 60.0

Settle = Callable[[bytes | PolicyBridgeError], None]


def shared_inference(host: Host) -> "Inference":
    """Return the one inference of a server, because a sequence's requests may come over any transport."""
    return host.shared(Inference, lambda: Inference(host.opener, host.config.sequence_idle, host.config.limits))


class Inference:
    """For the loop thread.

    Args:
        opener: opens the engine's sessions.
        idle: seconds without a request after which a sequence ends.
        limits: limits of a request.

    """

    def __init__(self, opener: SessionOpener, idle: float, limits: MessageLimits) -> None:
        self._limits = limits
        self.states = VersionStates()
        self._opener = opener
        self._engine = opener.engine
        self._reader = RequestReader()
        self._sequences = Sequences(idle)
        self._dropping: asyncio.TimerHandle | None = None

    def start(self, data: bytes, call: UnaryCall) -> None:
        """Answer a serialized request: in this turn if its version is loaded, otherwise in a task.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        watch = Stopwatch()
        if len(data) > LARGE:
            call.run(self._infer_large(data, watch, call.work))
            return
        request = self._reader.read(data)
        self._limits.check_features(len(request.payloads))
        loaded = None if request.step else self._engine.loaded(request.reference)
        if loaded is None:
            call.run(self.infer(request, watch))
        else:
            self._begin(request, loaded, watch, call.settle)

    async def _infer_large(self, data: bytes, watch: Stopwatch, work: Work) -> bytes:
        return await self.infer(await work.run(parsed_request, data), watch)

    async def infer(self, request: InferRequest, watch: Stopwatch | None = None) -> bytes:
        """Give the serialized response to a request.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        watch = watch or Stopwatch()
        self._limits.check_features(len(request.payloads))
        if request.step is not None:
            return await self._infer_step(request, request.step, watch)
        loaded = await self._opener.version(request.reference)
        return await awaited(partial(self._begin, request, loaded, watch))

    def _begin(self, request: InferRequest, loaded: LoadedVersion, watch: Stopwatch, settle: Settle) -> None:
        self._opener.check_open()
        state = self.states.of(loaded)
        try:
            plan = self._plan(request, state, loaded)
            rows = plan.rows.make(request.payloads)
        except PolicyBridgeError:
            state.statistics.fail(watch)
            raise
        watch.is_read()

        def done(result: list[Values] | PolicyBridgeError) -> None:
            watch.is_evaluated()
            try:
                response = plan.response(request.id, _advices(result))
            except PolicyBridgeError as error:
                state.statistics.fail(watch)
                settle(error)
            else:
                state.statistics.add(len(rows), watch)
                settle(response)

        Evaluation(self._engine, loaded, plan.batcher, done).submit(rows, request.options)

    def _plan(self, request: InferRequest, state: VersionState, loaded: LoadedVersion) -> InferPlan:
        if self._dropping is None:
            self._dropping = asyncio.get_running_loop().call_later(_DROP_SECONDS, self._drop)
        plan = state.plan(request.format, loaded, self._engine.schedule)
        self._limits.check_values(plan.texts)
        return plan

    def _drop(self) -> None:
        self._dropping = None
        if self.states.drop_unused():
            self._dropping = asyncio.get_running_loop().call_later(_DROP_SECONDS, self._drop)

    async def _infer_step(self, request: InferRequest, step: SequenceStep, watch: Stopwatch) -> bytes:
        # Found before anything is waited for, so that a sequence's requests stay in their order.
        sequence = self._sequences.find(request, step)
        async with sequence.turn:
            watch.is_due()
            if step.start:
                await self._open(sequence, request, step)
            session = sequence.session(request.reference.version)
            state = self.states.of(session.loaded)
            try:
                response = await self._ask(sequence, session, state, request, watch)
            except PolicyBridgeError:
                state.statistics.fail(watch)
                raise
            state.statistics.add(1, watch)
            if step.end:
                try:
                    await finish(session)
                finally:
                    self._sequences.end(sequence)
            return response

    async def _open(self, sequence: Sequence, request: InferRequest, step: SequenceStep) -> None:
        options = SessionOptions(options=request.options, labels={"sequence_id": step.id})
        try:
            sequence.begin(await self._opener.open(request.reference, options, sequence))
        except BaseException:
            self._sequences.end(sequence)
            raise

    async def _ask(
        self, sequence: Sequence, session: Session, state: VersionState, request: InferRequest, watch: Stopwatch
    ) -> bytes:
        plan = self._plan(request, state, session.loaded)
        row = _only(plan.rows.make(request.payloads))
        session.view.context = request.options.get("context", session.view.context)
        watch.is_read()
        try:
            advice = await sequence.ask(session, plan.signature, row)
        except BaseException:
            # The policy's state is unknown after a failure. As with every session, that was its end.
            self._sequences.end(sequence)
            raise
        watch.is_evaluated()
        return plan.response(request.id, [advice], session.view.id)


def _advices(result: list[Values] | PolicyBridgeError) -> list[Values]:
    if isinstance(result, PolicyBridgeError):
        raise result
    return result


def _only(rows: list[Row]) -> Row:
    if len(rows) != 1:
        raise FieldError("inputs", f"a batch of {len(rows)} observations; a sequence takes one at a time")
    return rows[0]
