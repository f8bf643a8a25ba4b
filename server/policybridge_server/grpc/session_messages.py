"""The messages of one gRPC session after `open`: their handling and answers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_serdes import Outcome, Signature, Values, load_serdes
from policybridge_serdes.contract import decode_view
from policybridge_serdes.interactive import MOST_DECIDED, Decided
from policybridge_serdes.limits import Buffer, MessageLimits
from policybridge_serdes.messages import check_outcome, outcome_from_pb, version_to_pb
from policybridge_serdes.protobuf import signature_from_pb
from policybridge_server.engine.session import Session

_PART: Final = 1 << 20
"""Bytes of a form in one message: clients of gRPC take 4 MiB."""

RECORDED: Final = pb.SessionResponse(outcome_recorded=pb.OutcomeRecorded())
"""Answers an outcome when the ledger holds it."""


class Observation(NamedTuple):
    """A message that asks for a decision: its values, and what reads them."""

    decode: Callable[[Any], Values]
    values: Buffer


class SessionMessages:
    """Reads a session's messages and writes its decisions.

    Args:
        session: the new session, to which the signature in ``message`` is bound if there is one.
        message: the client's `open`.
        limits: limits of messages.

    Attributes:
        opened: the answer to `open`.

    Raises:
        InvalidError: the signature does not fit the policy's.
        TooLargeError: its observations are larger than the limits, or there are too many of them.
        NotFoundError: there is no such SerDes.

    """

    def __init__(self, session: Session, message: pb.Open, limits: MessageLimits) -> None:
        self._serdes = load_serdes(message.serdes or "bitstream", limits)
        self._is_bitstream = message.serdes in ("", "bitstream")
        self._session = session
        self._limits = limits
        self._version = session.policy.version
        self._decode: Callable[[bytes], Values] = _without_signature
        self._decode_view: Callable[[Buffer], Values] = _without_signature
        self._encode: Callable[[Values], bytes] = _without_signature
        self._step = 0
        self._last: pb.SessionResponse | None = None
        ignored = self._bind(message.signature) if message.HasField("signature") else ()
        opened = pb.Opened(
            session_id=session.view.id,
            policy=version_to_pb(session.policy),
            ignored_features=ignored,
            decides=session.decides,
            outside=session.outside,
        )
        if session.forms is not None:
            for kind, form in session.forms.by_kind.items():
                opened.forms[kind].digest, opened.forms[kind].bytes = form.digest, len(form.data)
        self.opened = pb.SessionResponse(opened=opened)

    def _bind(self, message: tensor_pb2.Signature) -> tuple[str, ...]:
        signature = _signature(message, self._limits)
        ignored = self._session.bind(signature)
        features, advice = self._serdes.codec(signature.features), self._serdes.codec(signature.advice_layout)
        self._decode, self._encode = features.decode, advice.encode
        self._decode_view = partial(decode_view, features)
        return ignored

    def read(
        self, request: pb.SessionRequest, values: Buffer | None = None
    ) -> pb.SessionResponse | Observation | Outcome | Decided | None:
        """Read one message; ``values`` are those of a large observation, which ``request`` lacks.

        Returns:
            The observation to decide on, the outcome or the decisions to record, the answer to a step that was sent
            again, or ``None`` for a context or a signature, which have no answer.

        Raises:
            PreconditionError: the message is out of order.
            InvalidError: it cannot be decoded.

        """
        kind = request.WhichOneof("message")
        if kind == "observation":
            return self._observation(request.observation, values)
        if kind == "context":
            self._session.context(request.context.name)
            return None
        if kind == "signature":
            self._bind(request.signature)
            return None
        if kind == "decided":
            return self._decided(request.decided)
        if kind == "outcome":
            check_outcome(request.outcome, self._limits)
            return outcome_from_pb(request.outcome)
        known = "`observation`, `context`, `signature`, `decided`, `form` and `outcome`"
        raise PreconditionError(f"after `open` come {known}, not {kind or 'an empty message'}")

    def _observation(self, observation: pb.Observation, values: Buffer | None) -> pb.SessionResponse | Observation:
        step = observation.step
        if step == self._step and self._last is not None:
            return self._last
        if step == self._step and step:
            raise PreconditionError(f"step {step} came again; its answer was too large to be kept")
        if step != self._step + 1:
            raise PreconditionError(f"step {step} came; {self._step + 1} is next, or {self._step} again")
        if values is not None:
            return Observation(self._decode_view, values)
        return Observation(self._decode, observation.values)

    def _decided(self, decided: pb.Decided) -> Decided:
        if not self._is_bitstream:
            raise InvalidError("a client that decides by itself uses the SerDes bitstream")
        if not 1 <= decided.count <= MOST_DECIDED:
            raise InvalidError(f"{decided.count} decisions in one message; it takes 1 to {MOST_DECIDED}")
        return Decided(decided.count, decided.nanoseconds, decided.payload, decided.chances)

    def form(self, request: pb.FormRequest) -> Iterator[pb.SessionResponse]:
        """Give the parts of a form; see `Session.form`."""
        data = memoryview(self._session.form(request.digest))
        for start in range(0, len(data), _PART):
            part = pb.FormPart(data=bytes(data[start : start + _PART]), last=start + _PART >= len(data))
            yield pb.SessionResponse(form=part)

    def decision(self, advice: Values, log_probability: float | None) -> bytes:
        """Write the answer to the latest observation, and keep it for its step sent again."""
        self._step += 1
        decision = pb.Decision(
            step=self._step, version=self._version, advice=self._encode(advice), log_probability=log_probability
        )
        self._last = pb.SessionResponse(decision=decision)
        return self._last.SerializeToString()

    def forget(self) -> None:
        """Keep the latest answer no longer."""
        self._last = None


def _without_signature(_: object) -> NoReturn:
    raise PreconditionError("an observation came before the signature of its features")


def _signature(message: tensor_pb2.Signature, limits: MessageLimits) -> Signature:
    limits.check_features(len(message.features))
    limit = limits.observation_bytes
    signature = signature_from_pb(message)
    if signature.features.size > limit:
        raise TooLargeError(f"observations of {signature.features.size} bytes; at most {limit} are taken")
    return signature
