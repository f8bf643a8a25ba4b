"""PolicyService.Evaluate: one decision without a session."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Final
from weakref import ref

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import Layout, PolicyReference, SerDes, Signature, TensorSpec, Values, load_serdes
from policybridge_serdes.bitstream import BitstreamSerDes, PackedCodec
from policybridge_serdes.contract import readable
from policybridge_serdes.limits import LARGE, Buffer, MessageLimits
from policybridge_serdes.messages import reference_from_pb, version_to_pb
from policybridge_serdes.protobuf import ProtobufSerDes, parse, spec_from_pb
from policybridge_serdes.protobuf_fields import divide
from policybridge_serdes.values import packed
from policybridge_server.budget.work import Aside
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.single import Done, Evaluation, awaited
from policybridge_server.grpc.calls import parsed
from policybridge_server.grpc.forms import Forms, Span, spans
from policybridge_server.grpc.unary import UnaryCall

_TENSORS: Final = (2, 2, 1)
_ENCODED: Final = (3, 2)
_ENCODED_TENSORS: Final = (*_ENCODED, 2, 1)
"""Paths in an EvaluateRequest to the values: tensors.values.data, encoded.data, and encoded.data read as the former."""

_NO_OBSERVATION: Final = "the request has neither `tensors` nor `encoded`: there is no observation"


@dataclass(frozen=True, slots=True)
class _Known:
    """The parsed parts of requests of one form.

    Attributes:
        reference: the policy's reference.
        loaded: the version that answered the first of them.
        batcher: that version's batcher. Neither may keep the version's model in memory.
        codec: the observation's codec.
        prefix: the bytes before the advice's in the response.

    """

    reference: PolicyReference
    loaded: "ref[LoadedVersion]"
    batcher: "ref[Batcher]"
    codec: PackedCodec
    prefix: bytes


@dataclass(frozen=True, slots=True)
class _Request:
    """An EvaluateRequest, read."""

    reference: PolicyReference
    serdes: SerDes
    serdes_name: str
    typed: bool
    layout: Layout
    values: Values
    advice: TensorSpec | None


class Evaluate:
    """Answers EvaluateRequests. For the loop thread.

    Args:
        opener: opens the engine's sessions.
        limits: limits of a request.

    """

    def __init__(self, opener: SessionOpener, limits: MessageLimits) -> None:
        self._opener = opener
        self._engine = opener.engine
        self._own_serdes = partial(load_serdes, limits=limits)
        """Makes a SerDes for one thread alone: a SerDes caches its prepared layouts."""
        self._serdes = lru_cache(maxsize=16)(self._own_serdes)
        self._forms: Forms[_Known] = Forms()

    def start(self, request: bytes, call: UnaryCall) -> None:
        """Answer in this turn if the form is known and its version is loaded; in a task otherwise."""
        known = self._forms.find(request)
        if known is None or not self._submit(*known, call):
            call.run(self.answer(request, call.work.run))

    def _submit(self, known: _Known, values: Sequence[bytes], call: UnaryCall) -> bool:
        loaded, batcher = self._engine.loaded(known.reference), known.batcher()
        if loaded is None or batcher is None or known.loaded() is not loaded:
            return False
        self._opener.check_open()
        row = known.codec.decode(values[0] if len(values) == 1 else b"".join(values))
        Evaluation(self._engine, loaded, batcher, partial(_reply, call, known.prefix)).submit([row], {})
        return True

    async def answer(self, data: bytes, aside: Aside = asyncio.to_thread) -> bytes:
        """Answer a serialized EvaluateRequest of any form; a large one is read, and answered, ``aside``.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        large = len(data) > LARGE
        request = await aside(_read_large, data, self._own_serdes) if large else _read(data, self._serdes)
        loaded = await self._opener.version(request.reference)
        self._opener.check_open()
        signature = Signature(request.layout, request.advice or _own_advice(loaded))
        batcher = loaded.keep(signature, self._engine.schedule)

        def begin(done: Done) -> None:
            Evaluation(self._engine, loaded, batcher, done).submit([request.values], {})

        (advice,) = await awaited(begin)
        answer = partial(_response, request, loaded, advice, signature.advice_layout)
        response = await aside(answer) if advice.nbytes > LARGE else answer()
        if not large and request.layout.fixed and signature.advice.fixed:
            prefix = response.removesuffix(advice.tobytes())
            codec = PackedCodec(request.layout)
            known = _Known(request.reference, ref(loaded), ref(batcher), codec, prefix)
            self._remember(data, request, known)
        return response

    def _remember(self, data: bytes, request: _Request, known: _Known) -> None:
        spans = _value_spans(data, request)
        # The values of an unusual message may be elsewhere: the fields of a message may come twice.
        if b"".join(data[start:end] for start, end in spans) == request.values.tobytes():
            self._forms.remember(data, spans, known)


def _read(data: bytes, load: Callable[[str], SerDes]) -> _Request:
    request = parsed(pb.EvaluateRequest.FromString, data)
    form = request.WhichOneof("observation")
    if form is None:
        raise InvalidError(_NO_OBSERVATION)
    if form == "tensors":
        return _decoded(request, load, None, request.tensors.SerializeToString())
    return _decoded(request, load, request.encoded, request.encoded.data)


def _read_large(data: bytes, load: Callable[[str], SerDes]) -> _Request:
    """Read a request without a copy of its observation: the parser would copy it, and stall all threads."""
    rest, observations = divide(pb.EvaluateRequest.DESCRIPTOR, data, (_TENSORS[0], _ENCODED[0]))
    request = parsed(pb.EvaluateRequest.FromString, rest)
    if not observations:
        raise InvalidError(_NO_OBSERVATION)
    # Of the two kinds the last one counts; to join messages of one kind is to merge them.
    kind, parts = [(number, [part for _, part in group]) for number, group in groupby(observations, itemgetter(0))][-1]
    observation = packed(parts, sum(map(len, parts)))
    if kind == _TENSORS[0]:
        return _decoded(request, load, None, observation)
    described, values = divide(tensor_pb2.EncodedTensors.DESCRIPTOR, observation, _ENCODED[1:])
    encoded = parse(tensor_pb2.EncodedTensors, described)
    return _decoded(request, load, encoded, values[-1][1] if values else b"")


def _decoded(
    request: pb.EvaluateRequest, load: Callable[[str], SerDes], encoded: tensor_pb2.EncodedTensors | None, data: Buffer
) -> _Request:
    """Decode the observation ``data``; its tensors are typed if they are not ``encoded``."""
    name = "protobuf" if encoded is None else encoded.serdes
    serdes = load(name)
    layout, values = serdes.decode(readable(serdes, data))
    advice = spec_from_pb(request.advice_spec) if request.HasField("advice_spec") else None
    return _Request(reference_from_pb(request.policy), serdes, name, encoded is None, layout, values, advice)


def _reply(call: UnaryCall, prefix: bytes, result: list[Values] | PolicyBridgeError) -> None:
    call.settle(result if isinstance(result, PolicyBridgeError) else prefix + result[0].tobytes())


def _value_spans(data: bytes, request: _Request) -> list[Span]:
    """Return the spans of the observation's values; none if they have no fixed place."""
    if request.typed:
        return list(spans(data, _TENSORS))
    if isinstance(request.serdes, ProtobufSerDes):
        return list(spans(data, _ENCODED_TENSORS))
    if isinstance(request.serdes, BitstreamSerDes):
        # The first line is the layout.
        return [(data.index(b"\n", start, end) + 1, end) for start, end in spans(data, _ENCODED)]
    return []


def _own_advice(loaded: LoadedVersion) -> TensorSpec:
    if loaded.signature.advice is None:
        raise InvalidError(f"{loaded.stored} declares no advice: give its spec in `advice_spec`, or in its policy.toml")
    return loaded.signature.advice


def _response(request: _Request, loaded: LoadedVersion, advice: Values, layout: Layout) -> bytes:
    data, policy = request.serdes.encode(advice, layout), version_to_pb(loaded.stored.policy)
    if request.typed:
        tensors = tensor_pb2.DescribedTensors.FromString(data)
        return pb.EvaluateResponse(policy=policy, tensors=tensors).SerializeToString()
    encoded = tensor_pb2.EncodedTensors(serdes=request.serdes_name, data=data)
    return pb.EvaluateResponse(policy=policy, encoded=encoded).SerializeToString()
