"""The connection over gRPC: one bidirectional stream per session."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, ClassVar, Final, NamedTuple
from weakref import WeakSet

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge.v1.tensor_pb2 import EncodedTensors
from policybridge_client.contract import FormReference
from policybridge_client.credentials import Credentials
from policybridge_client.grpc_channel import ask, close_channel, open_channel, token_metadata, until_taken, was_closed
from policybridge_client.grpc_stream import Stream, error_of, with_cure
from policybridge_client.spool import PATIENCE
from policybridge_core.closing import Closing
from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError
from policybridge_serdes import (
    Layout,
    Outcome,
    PolicyReference,
    PolicyVersion,
    SerDes,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    load_serdes,
)
from policybridge_serdes.limits import DEFAULT_LIMIT
from policybridge_serdes.messages import exploration_to_pb, outcome_to_pb, reference_to_pb, version_from_pb
from policybridge_serdes.protobuf import signature_to_pb, spec_to_pb

_ENVELOPE: Final = 1 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", DEFAULT_LIMIT + _ENVELOPE),
    ("grpc.max_send_message_length", DEFAULT_LIMIT + _ENVELOPE),
    # Ignore http_proxy: a build sets it for its downloads, and the policy server is not behind that proxy.
    ("grpc.enable_http_proxy", 0),
)


_SMALL: Final = 1 << 12
"""Bytes that the kernel takes for a server that reads nothing."""

_PIECE: Final = 1 << 15
"""Bytes of a record in one message."""

_LISTS: Final = ("ipv4:", "ipv6:")
"""Beginnings of targets that may name several servers, separated by commas."""

_MANY: Final = ("dns:", *_LISTS)
"""Beginnings of targets that gRPC may resolve to several servers."""

_IN_TURN: Final = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')
"""Each session goes to the next available server. Without this, gRPC sends all sessions to the first."""


def _options(target: str) -> Sequence[tuple[str, Any]]:
    return (*_OPTIONS, _IN_TURN) if target.startswith(_MANY) else _OPTIONS


class OneShotAdvice(NamedTuple):
    """The result of `GrpcConnection.evaluate_once`: one record of ``layout``, and the version that gave it."""

    values: Values
    layout: Layout
    policy: PolicyVersion


class GrpcConnection(Closing):
    """A channel to a server; its sessions share it.

    Args:
        target: as in gRPC, ``HOST:PORT`` or ``unix:PATH``; it may be followed by ``,serdes=NAME``.
        timeout: limit of each wait for the server, in seconds. A session may last any time.
        serdes: the SerDes if ``target`` names none; ``bitstream`` is the cheapest.
        credentials: the client's certificates and token; by default none.

    Raises:
        NotFoundError: no SerDes has this name.
        InvalidError: a file of the credentials cannot be read, or its token would be sent in plaintext.

    """

    _secure: ClassVar[bool] = False

    def __init__(
        self, target: str, timeout: float, *, serdes: str = "bitstream", credentials: Credentials | None = None
    ) -> None:
        if not timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {timeout}")
        self._target, _, named = target.removeprefix("//").partition(",serdes=")
        if "," in self._target and not self._target.startswith(_LISTS):
            raise InvalidError(
                f"each address of a list begins with its kind, as in grpc:A:50051,grpc:B:50051: {target}"
            )
        self._timeout = timeout
        self._serdes_name = named or serdes
        self._serdes = load_serdes(self._serdes_name)
        shown = credentials or Credentials()
        self._metadata = token_metadata(self._target, shown, secure=self._secure)
        self._channel = open_channel(self._target, shown, secure=self._secure, options=_options(self._target))
        self._made_stub = PolicyServiceStub(self._channel)
        self._closed = False
        self._streams: WeakSet[Stream] = WeakSet()
        self._plain = True

    @property
    def _stub(self) -> PolicyServiceStub:
        if self._closed:
            raise was_closed(self._target)
        return self._made_stub

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "GrpcSession":
        """Open a session."""
        opening = pb.Open(
            policy=reference_to_pb(policy),
            signature=signature_to_pb(signature),
            serdes=self._serdes_name,
            context=options.context,
            options=options.options,
            labels=options.labels,
            exploration=exploration_to_pb(options.exploration),
            evaluates=options.evaluates and self._serdes_name == "bitstream",
        )
        due = monotonic() + self._timeout
        session = until_taken(lambda: GrpcSession(self._stream(due), opening, signature, self._serdes), due)
        session.server = f"{'grpcs' if self._secure else 'grpc'}:{self._target}"
        session.asked, session.options = policy, options
        session.new_stream = self._stream
        return session

    def _stream(self, due: float | None = None) -> Stream:
        self._plain = False
        stream = Stream(self._stub, self._target, self._timeout, self._metadata, due)
        self._streams.add(stream)
        return stream

    def check(self) -> None:
        """Check that the server answers an empty request, with advice or with an error."""
        try:
            self._ask(self._stub.Evaluate, pb.EvaluateRequest())
        except grpc.RpcError as failure:
            if failure.code() is grpc.StatusCode.UNAVAILABLE:
                raise UnavailableError(
                    f"could not reach the server at {self._target}: {with_cure(failure.details() or '')}"
                ) from failure

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of any session."""
        request = pb.ReportOutcomeRequest(session_id=session_id, outcome=outcome_to_pb(outcome))
        try:
            self._ask(self._stub.ReportOutcome, request)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target) from failure

    def evaluate_once(
        self, policy: PolicyReference, layout: Layout, observation: Values, advice: TensorSpec | None = None
    ) -> OneShotAdvice:
        """Ask for one decision without a session. Without ``advice`` the policy's own spec is used.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        serdes = self._serdes
        request = pb.EvaluateRequest(policy=reference_to_pb(policy), advice_spec=spec_to_pb(advice) if advice else None)
        request.encoded.CopyFrom(EncodedTensors(serdes=self._serdes_name, data=serdes.encode(observation, layout)))
        # Behind a large request, or a session, even a small one can wait for a server that reads nothing.
        self._plain = self._plain and request.ByteSize() <= _SMALL
        try:
            response = self._ask(self._stub.Evaluate, request, plain=self._plain)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target) from failure
        layout, values = serdes.decode(response.encoded.data)
        return OneShotAdvice(values, layout, version_from_pb(response.policy))

    def _ask(self, method: Any, request: Any, *, plain: bool = False) -> Any:
        due = monotonic() + self._timeout

        def once() -> Any:
            return ask(method, request, self._target, due - monotonic(), self._metadata, plain=plain)

        return until_taken(once, due)

    def close(self) -> None:
        """Close the channel; its sessions end, and no call follows."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        close_channel(self._channel)


class SecureGrpcConnection(GrpcConnection):
    """A channel over TLS."""

    _secure = True


class GrpcSession(Closing):
    """One session; see `ClientSession`.

    Attributes:
        new_stream: begins another call to the same server.

    """

    new_stream: Callable[[], Stream]
    server: str
    asked: PolicyReference
    options: SessionOptions

    def __init__(self, stream: Stream, opening: pb.Open, signature: Signature, serdes: SerDes) -> None:
        self._stream = stream
        self._encode = serdes.codec(signature.features).encode
        self._decode = serdes.codec(signature.advice_layout).decode
        self._explores = opening.HasField("exploration")
        self._step = 0
        self.log_probability: float | None = None
        response = stream.open(pb.SessionRequest(open=opening))
        opened = response.opened
        if not (opened.session_id and opened.policy.name):
            raise self._refused("Opened with the session and the policy", response)
        self.id = opened.session_id
        self.policy = version_from_pb(opened.policy)
        self.decides = tuple(opened.decides)
        self.ignored_features = tuple(opened.ignored_features)
        self.forms = {kind: FormReference(each.digest, each.bytes) for kind, each in opened.forms.items()}

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision."""
        self._step += 1
        asked = pb.Observation(step=self._step, values=self._encode(observation))
        decision = self._stream.ask(pb.SessionRequest(observation=asked)).decision
        if decision.step != self._step:
            told = f"the server answered step {decision.step}; the request was step {self._step}"
            raise self._stream.fail(InvalidError(told))
        self.log_probability = decision.log_probability if decision.HasField("log_probability") else None
        try:
            return self._decode(decision.advice)
        except PolicyBridgeError as error:
            raise self._stream.fail(error) from None

    def context(self, name: str) -> None:
        """Name the function or module of the next observations."""
        self._stream.send(pb.SessionRequest(context=pb.Context(name=name)))

    def form(self, form: FormReference) -> bytes:
        """Ask for a form."""
        form.check()
        response = self._stream.ask(pb.SessionRequest(form=pb.FormRequest(digest=form.digest)))
        data = bytearray()
        while response.HasField("form") and len(data) + len(response.form.data) <= form.size:
            data += response.form.data
            if response.form.last:
                return bytes(data)
            response = self._stream.next()
        raise self._refused("a part of the form", response)

    def decided(self, count: int, nanoseconds: int, payload: bytes) -> None:
        """Report decisions of this client."""
        told = pb.Decided(count=count, nanoseconds=nanoseconds, payload=payload, chances=self._explores)
        self._stream.tell(pb.SessionRequest(decided=told))

    def report(self, outcome: Outcome) -> None:
        """Report the outcome."""
        self._report(outcome, last=False)

    def conclude(self, outcome: Outcome) -> None:
        """Report the outcome, and end the session."""
        self._report(outcome, last=True)
        self._stream.conclude()

    def _report(self, outcome: Outcome, *, last: bool) -> None:
        response = self._stream.ask(pb.SessionRequest(outcome=outcome_to_pb(outcome)), last=last)
        if not response.HasField("outcome_recorded"):
            raise self._refused("OutcomeRecorded", response)

    def finish(self) -> None:
        """End the session, and wait until its record is kept."""
        self._stream.finish(PATIENCE)

    def send_record(self, record: bytes) -> None:
        """Send the record of an earlier session, in a call of its own."""
        stream = self.new_stream()
        try:
            for start in range(0, len(record), _PIECE):
                stream.send(pb.SessionRequest(record=record[start : start + _PIECE]))
            stream.finish(PATIENCE)
        finally:
            stream.fail(UnavailableError("it was closed"))

    def _refused(self, wanted: str, response: pb.SessionResponse) -> PolicyBridgeError:
        got = response.WhichOneof("message") or "nothing"
        told = f"the server's answer does not follow the protocol: it is {got}, and {wanted} is right"
        return self._stream.fail(InvalidError(told))

    def close(self) -> None:
        """End the session."""
        self._stream.close()
