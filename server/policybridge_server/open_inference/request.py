"""ModelInferRequests: which model is asked, which observations they hold, and which sequence they belong to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from policybridge.inference import inference_service_pb2 as pb
from policybridge_serdes import PolicyReference
from policybridge_serdes.limits import LARGE, Buffer
from policybridge_serdes.protobuf_fields import divide, owned
from policybridge_server.grpc.calls import parsed
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.grpc.forms import Forms, spans
from policybridge_server.open_inference.datatypes import raw_of
from policybridge_server.open_inference.supported import check_parameters

_NOT_OPTIONS: Final = {"advice", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"}
_ID: Final = pb.ModelInferRequest.ID_FIELD_NUMBER
_RAW_INPUT_CONTENTS: Final = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER


@dataclass(frozen=True)
class SequenceStep:
    """The place of a request in a sequence."""

    id: str
    start: bool
    end: bool


class InferRequest(NamedTuple):
    """One request; a tuple, because a frozen dataclass takes four times as long to make.

    Attributes:
        reference: the policy's reference.
        id: chosen by the client; the response has it too.
        format: the request without its values, id and options: requests with equal formats are read alike.
        payloads: the inputs' elements as bytes, one payload for each input.
        step: in the sequence that the request belongs to, if it belongs to one.
        options: options for the policy.

    """

    reference: PolicyReference
    id: str
    format: bytes
    payloads: Sequence[Buffer]
    step: SequenceStep | None
    options: dict[str, str]


class RequestReader:
    """Reads serialized requests; those of a known form without the parser."""

    def __init__(self) -> None:
        self._forms: Forms[InferRequest] = Forms()

    def read(self, data: bytes) -> InferRequest:
        """Read a request.

        Raises:
            InvalidError: it is no request, or contradicts itself.

        """
        known = self._forms.find(data)
        request = _with_values(*known) if known else None
        if request is None:
            request = parsed_request(data)
            if request.step is None:
                self._remember(data, request)
        return request

    def _remember(self, data: bytes, request: InferRequest) -> None:
        ids, values = list(spans(data, (_ID,))), list(spans(data, (_RAW_INPUT_CONTENTS,)))
        shown = [*ids, *values]
        # Fields in another order, or typed contents, are unusual: such requests are parsed.
        if len(ids) < 2 and shown == sorted(shown) and [data[start:end] for start, end in values] == request.payloads:
            # Without the payloads of this first request, which nobody asks for again.
            self._forms.remember(data, shown, request._replace(payloads=[b""] * len(values)))


def parsed_request(data: bytes) -> InferRequest:
    """Read a serialized request by the parser.

    Raises:
        InvalidError: it is no request, or contradicts itself.

    """
    if len(data) <= LARGE:
        return read_request(parsed(pb.ModelInferRequest.FromString, data))
    # The parser would copy the contents, and stall all threads meanwhile.
    rest, contents = divide(pb.ModelInferRequest.DESCRIPTOR, data, (_RAW_INPUT_CONTENTS,))
    raw = owned([part for _, part in contents], len(data))
    return read_request(parsed(pb.ModelInferRequest.FromString, rest), raw)


def _with_values(known: InferRequest, values: Sequence[bytes]) -> InferRequest | None:
    """Give the request of a known form; ``None`` if the parser would refuse its id."""
    if len(values) == len(known.payloads):
        return InferRequest(known.reference, known.id, known.format, values, None, known.options)
    try:
        request_id = values[0].decode()
    except UnicodeDecodeError:
        return None
    return InferRequest(known.reference, request_id, known.format, values[1:], None, known.options)


def reference_to(name: str, version: str) -> PolicyReference:
    """Give the policy that is meant by a model's name and version: a number or an alias, or neither.

    Raises:
        InvalidError: there is no name.

    """
    if not name:
        raise FieldError("model_name", "the request names no model")
    # Longer numbers are no versions, and Python would refuse them with an error of its own.
    number = version.isascii() and version.isdigit() and len(version) < 20
    return PolicyReference(name, version=int(version) if number else None, alias=None if number else version or None)


def read_request(message: pb.ModelInferRequest, contents: Sequence[Buffer] = ()) -> InferRequest:
    """Take a request apart; ``message`` is spent afterwards. ``contents`` are raw ones that it does not hold itself.

    Raises:
        InvalidError: it contradicts itself.

    """
    check_parameters((message,), message.inputs, message.outputs)
    reference, request_id = reference_to(message.model_name, message.model_version), message.id
    step, options = None, {}
    if message.parameters:
        step, options = _step(message), _options(message)
        _keep_advice(message)
    payloads = _payloads(message, contents or list(message.raw_input_contents))
    message.ClearField("id")
    request_format = message.SerializeToString(deterministic=True)
    return InferRequest(reference, request_id, request_format, payloads, step, options)


def _payloads(message: pb.ModelInferRequest, payloads: Sequence[Buffer]) -> Sequence[Buffer]:
    if not payloads:
        typed = [raw_of(tensor) for tensor in message.inputs]
        for tensor in message.inputs:
            tensor.ClearField("contents")
        return typed
    if len(payloads) != len(message.inputs):
        raise FieldError(
            "raw_input_contents",
            f"{len(payloads)} raw contents came for {len(message.inputs)} inputs; one each is right",
        )
    message.ClearField("raw_input_contents")
    return payloads


def _keep_advice(message: pb.ModelInferRequest) -> None:
    advice = message.parameters["advice"].string_param if "advice" in message.parameters else ""
    message.ClearField("parameters")
    if advice:
        message.parameters["advice"].string_param = advice


def _step(message: pb.ModelInferRequest) -> SequenceStep | None:
    given = message.parameters
    if "sequence_id" not in given:
        return None
    kind = given["sequence_id"].WhichOneof("parameter_choice")
    if kind not in ("int64_param", "uint64_param", "string_param"):
        raise FieldError("parameters.sequence_id", "a sequence_id is an integer or a string")
    value = getattr(given["sequence_id"], kind)
    # Clients send 0 or the empty string for no sequence.
    return SequenceStep(str(value), _flag(message, "sequence_start"), _flag(message, "sequence_end")) if value else None


def _flag(message: pb.ModelInferRequest, name: str) -> bool:
    if name not in message.parameters:
        return False
    if message.parameters[name].WhichOneof("parameter_choice") != "bool_param":
        raise FieldError(f"parameters.{name}", f"{name} is a bool")
    return message.parameters[name].bool_param


def _options(message: pb.ModelInferRequest) -> dict[str, str]:
    names: Iterable[str] = message.parameters.keys() - _NOT_OPTIONS
    return {name: _text(message.parameters[name]) for name in names}


def _text(parameter: pb.InferParameter) -> str:
    kind = parameter.WhichOneof("parameter_choice")
    return "" if kind is None else str(getattr(parameter, kind))
