"""The connection over gRPC: one bidirectional stream per session."""

from typing import Final, NamedTuple
from weakref import WeakSet

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge.v1.tensor_pb2 import EncodedTensors
from policybridge_client.grpc_stream import Stream, error_of
from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_serdes import (
    Exploration,
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
from policybridge_serdes.interactive import DEFAULT_LIMIT
from policybridge_serdes.protobuf import signature_to_pb, spec_to_pb

_ENVELOPE: Final = 1 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", DEFAULT_LIMIT + _ENVELOPE),
    ("grpc.max_send_message_length", DEFAULT_LIMIT + _ENVELOPE),
    # Ignore http_proxy: a build sets it for its downloads, and the policy server is not behind that proxy.
    ("grpc.enable_http_proxy", 0),
)


class OneShotAdvice(NamedTuple):
    """The result of `GrpcConnection.evaluate_once`: one record of ``layout``, and the version that gave it."""

    values: Values
    layout: Layout
    policy: PolicyVersion


class GrpcConnection:
    """A channel to a server; its sessions share it.

    Args:
        target: as in gRPC, ``HOST:PORT`` or ``unix:PATH``; it may be followed by ``,serdes=NAME``.
        timeout: limit of each wait for the server, in seconds. A session may last any time.
        serdes: the SerDes if ``target`` names none; ``bitstream`` is the cheapest.

    Raises:
        NotFoundError: no SerDes has this name.

    """

    def __init__(self, target: str, timeout: float, *, serdes: str = "bitstream") -> None:
        if not timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {timeout}")
        self._target, _, named = target.partition(",serdes=")
        self._timeout = timeout
        self._serdes_name = named or serdes
        self._serdes = load_serdes(self._serdes_name)
        self._channel = grpc.insecure_channel(self._target, options=_OPTIONS)
        self._stub = PolicyServiceStub(self._channel)
        self._streams: WeakSet[Stream] = WeakSet()

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "GrpcSession":
        """Open a session."""
        opening = pb.Open(
            policy=_policy(policy),
            signature=signature_to_pb(signature),
            serdes=self._serdes_name,
            context=options.context,
            options=options.options,
            labels=options.labels,
            exploration=_exploration(options.exploration),
        )
        stream = Stream(self._stub, self._target, self._timeout)
        self._streams.add(stream)
        return GrpcSession(stream, opening, signature, self._serdes)

    def check(self) -> None:
        """Check that the server can be reached: it has to answer an empty request, with advice or an error."""
        try:
            self._stub.Evaluate(pb.EvaluateRequest(), timeout=self._timeout)
        except grpc.RpcError as failure:
            if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise UnavailableError(
                    f"could not reach the server at {self._target}: {failure.details()}"
                ) from failure

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of any session."""
        request = pb.ReportOutcomeRequest(session_id=session_id, outcome=_outcome(outcome))
        try:
            self._stub.ReportOutcome(request, timeout=self._timeout)
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
        request = pb.EvaluateRequest(policy=_policy(policy), advice_spec=spec_to_pb(advice) if advice else None)
        request.encoded.CopyFrom(EncodedTensors(serdes=self._serdes_name, data=serdes.encode(observation, layout)))
        try:
            response = self._stub.Evaluate(request, timeout=self._timeout)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target) from failure
        layout, values = serdes.decode(response.encoded.data)
        return OneShotAdvice(values, layout, _version(response.policy))

    def close(self) -> None:
        """Close the channel; its sessions end."""
        for stream in list(self._streams):
            stream.close()
        self._channel.close()


class GrpcSession:
    """One session; see `ClientSession`."""

    def __init__(self, stream: Stream, opening: pb.Open, signature: Signature, serdes: SerDes) -> None:
        self._stream = stream
        self._encode = serdes.codec(signature.features).encode
        self._decode = serdes.codec(signature.advice_layout).decode
        self._step = 0
        self.log_probability: float | None = None
        opened = stream.ask(pb.SessionRequest(open=opening)).opened
        self.id = opened.session_id
        self.policy = _version(opened.policy)
        self.ignored_features = tuple(opened.ignored_features)

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision."""
        self._step += 1
        asked = pb.Observation(step=self._step, values=self._encode(observation))
        decision = self._stream.ask(pb.SessionRequest(observation=asked)).decision
        if decision.step != self._step:
            self.close()
            raise InvalidError(f"the server answered step {decision.step} where {self._step} was asked")
        self.log_probability = decision.log_probability if decision.HasField("log_probability") else None
        return self._decode(decision.advice)

    def context(self, name: str) -> None:
        """Tell the server what the next observations belong to."""
        self._stream.send(pb.SessionRequest(context=pb.Context(name=name)))

    def report(self, outcome: Outcome) -> None:
        """Report the outcome."""
        self._stream.ask(pb.SessionRequest(outcome=_outcome(outcome)))

    def close(self) -> None:
        """End the session."""
        self._stream.close()


def _policy(reference: PolicyReference) -> pb.PolicyReference:
    message = pb.PolicyReference(name=reference.name)
    if reference.version is not None:
        message.version = reference.version
    if reference.alias is not None:
        message.alias = reference.alias
    return message


def _outcome(outcome: Outcome) -> pb.Outcome:
    return pb.Outcome(values=outcome.values, status=outcome.status)


def _exploration(asked: Exploration | None) -> pb.Exploration | None:
    if asked is None:
        return None
    return pb.Exploration(seed=asked.seed, temperature=asked.temperature, epsilon=asked.epsilon)


def _version(policy: pb.PolicyVersion) -> PolicyVersion:
    return PolicyVersion(policy.name, policy.version, policy.digest)
