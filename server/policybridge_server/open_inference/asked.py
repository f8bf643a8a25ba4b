"""What a ModelInferRequest asks: which model, which observations, and which sequence they belong to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from policybridge.inference import inference_service_pb2 as pb
from policybridge_serdes import PolicyReference
from policybridge_server.grpc.field_error import FieldError
from policybridge_server.open_inference.datatypes import raw_of

_NOT_OPTIONS: Final = {"advice", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"}


@dataclass(frozen=True)
class Step:
    """Where in a sequence a request is."""

    id: str
    start: bool
    end: bool


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        reference: of the policy.
        id: for the client.
        form: all that says what the observations look like, without their values; the same bytes for the same form.
        payloads: the inputs' elements, one after the other.
        step: in the sequence, if it belongs to one.
        options: for the policy to read.

    """

    reference: PolicyReference
    id: str
    form: bytes
    payloads: list[bytes]
    step: Step | None
    options: dict[str, str]


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


def read_request(message: pb.ModelInferRequest) -> Asked:
    """Take a request apart; ``message`` is spent afterwards.

    Raises:
        InvalidError: it contradicts itself.

    """
    reference, request_id = reference_to(message.model_name, message.model_version), message.id
    step, options = None, {}
    if message.parameters:
        step, options = _step(message), _options(message)
        _keep_advice(message)
    payloads = _payloads(message)
    message.ClearField("id")
    form = message.SerializeToString(deterministic=True)
    return Asked(reference, request_id, form, payloads, step, options)


def _payloads(message: pb.ModelInferRequest) -> list[bytes]:
    payloads = list(message.raw_input_contents)
    if not payloads:
        payloads = [raw_of(tensor) for tensor in message.inputs]
        for tensor in message.inputs:
            tensor.ClearField("contents")
        return payloads
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


def _step(message: pb.ModelInferRequest) -> Step | None:
    given = message.parameters
    if "sequence_id" not in given:
        return None
    kind = given["sequence_id"].WhichOneof("parameter_choice")
    if kind not in ("int64_param", "uint64_param", "string_param"):
        raise FieldError("parameters.sequence_id", "a sequence_id is an integer or a string")
    value = getattr(given["sequence_id"], kind)
    # 0 and the empty string are what clients send for no sequence.
    return Step(str(value), _flag(message, "sequence_start"), _flag(message, "sequence_end")) if value else None


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
