"""A plan: the parts of answering that depend only on the format of a request."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import ElementType, Layout, PolicyVersion, Signature, TensorSpec, Values
from policybridge_serdes.specs import MAX_DIMENSIONS, can_hold
from policybridge_serdes.values import tensor
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.open_inference.datatypes import advice_from_json, datatype_of, kind_of, raw_elements
from policybridge_server.open_inference.inputs import ModelInput, Shape, batch_size, full_shape, model_inputs
from policybridge_server.open_inference.rows import PackedRow, PackedRows, Rows, VaryingRows
from policybridge_server.open_inference.supported import check_supported


@dataclass
class InferPlan:
    """How requests of one format are read, evaluated and answered. Made by ``make_plan``.

    Attributes:
        signature: the signature for the engine.
        batcher: the batcher of all clients with that signature.
        batch: how many observations a batch has; ``None`` for one observation without a batch dimension.
        rows: reads the observations.
        policy: the answering version.
        texts: number of a request's values that are text.

    """

    signature: Signature
    batcher: Batcher
    batch: int | None
    rows: Rows
    policy: PolicyVersion
    texts: int

    def __post_init__(self) -> None:
        advice = self.signature.advice
        version = pb.ModelInferResponse(model_name=self.policy.name, model_version=str(self.policy.version))
        self._start = version.SerializeToString()
        size = advice.size * (self.batch or 1)
        # The whole response except the advice, which comes last.
        self._prefix = self._written(advice.shape, bytes(size)).removesuffix(bytes(size)) if advice.fixed else None

    def _written(self, shape: Sequence[int], raw: bytes) -> bytes:
        advice = self.signature.advice
        full = shape if self.batch is None else (self.batch, *shape)
        output = pb.ModelInferResponse.InferOutputTensor(
            name=advice.name, datatype=datatype_of(advice.type), shape=full
        )
        return self._start + pb.ModelInferResponse(outputs=[output], raw_output_contents=[raw]).SerializeToString()

    def response(self, request_id: str, advices: Sequence[Values], session_id: str = "") -> bytes:
        """Write the response; ``session_id`` is that of a sequence.

        Raises:
            PolicyFailedError: the answers of a batch differ in shape.

        """
        if self._prefix is None:
            response = self._varying(advices)
        else:
            response = self._prefix + b"".join(each.tobytes() for each in advices)
        # Serialized messages that follow each other are one message, in which the fields of all are set.
        return response + _identified(request_id, session_id) if request_id or session_id else response

    def _varying(self, advices: Sequence[Values]) -> bytes:
        arrays = [tensor(self.signature.advice, each) for each in advices]
        if len({array.shape for array in arrays}) != 1:
            shapes = ", ".join(str(list(array.shape)) for array in arrays)
            raise PolicyFailedError(f"the answers of this batch differ in shape: {shapes}; ask one by one")
        return self._written(arrays[0].shape, raw_elements(self.signature.advice, np.stack(arrays)))


def _identified(request_id: str, session_id: str) -> bytes:
    response = pb.ModelInferResponse(id=request_id)
    if session_id:
        response.parameters["session_id"].string_param = session_id
    return response.SerializeToString()


def make_plan(request_format: bytes, loaded: LoadedVersion, schedule: Callable[[Batcher], None]) -> InferPlan:
    """Plan for the requests of this format (see `InferRequest`).

    Raises:
        InvalidError: such a request does not fit the policy; the message names both sides.
        UnsupportedError: it needs an extension of the protocol that this server lacks.

    """
    message = pb.ModelInferRequest.FromString(request_format)
    check_supported(message)
    declared = model_inputs(loaded)
    shapes = {given.name: _shape(given) for given in message.inputs}
    batch = _batch(declared, shapes)
    specs = [_spec(given, shapes[given.name], declared, batch) for given in message.inputs]
    signature = Signature(Layout.of(specs), _advice(message, loaded))
    _check_outputs(message, signature.advice)
    return InferPlan(
        signature,
        loaded.batcher(signature, schedule),
        batch,
        _rows(signature.features, shapes, batch),
        loaded.stored.policy,
        sum(math.prod(shapes[spec.name]) for spec in signature.features.specs if spec.type.is_text),
    )


def _shape(given: pb.ModelInferRequest.InferInputTensor) -> Shape:
    if len(given.shape) > MAX_DIMENSIONS:
        count = len(given.shape)
        raise FieldError(
            f"inputs[{given.name}].shape", f"{given.name} has {count} dimensions; at most {MAX_DIMENSIONS} are possible"
        )
    shape = tuple(given.shape)
    if any(size < 0 for size in shape) or not can_hold(shape):
        raise FieldError(f"inputs[{given.name}].shape", f"{given.name}: no tensor has the shape {list(shape)}")
    return shape


def _batch(declared: Mapping[str, ModelInput] | None, shapes: Mapping[str, Shape]) -> int | None:
    known = [(declared[name].spec, shape) for name, shape in shapes.items() if declared and name in declared]
    return batch_size(known) if known else None


def _spec(
    given: pb.ModelInferRequest.InferInputTensor,
    shape: Shape,
    declared: Mapping[str, ModelInput] | None,
    batch: int | None,
) -> TensorSpec:
    kind = kind_of(given.name, given.datatype)
    wanted = declared[given.name].spec if declared and given.name in declared else None
    if wanted is None:
        return TensorSpec(given.name, kind, _own(given.name, shape, batch))
    if wanted.type is ElementType.STRING and kind is ElementType.BYTES:
        kind = ElementType.STRING
    return TensorSpec(given.name, kind, wanted.shape)


def _own(name: str, shape: Shape, batch: int | None) -> Shape:
    """Give the shape of one observation of an input that the policy does not know."""
    if batch is None:
        return shape
    if shape[:1] != (batch,):
        raise FieldError(f"inputs[{name}].shape", f"{name} has the shape {list(shape)} in a batch of {batch}")
    return shape[1:]


def _advice(message: pb.ModelInferRequest, loaded: LoadedVersion) -> TensorSpec:
    if "advice" in message.parameters:
        return advice_from_json(message.parameters["advice"].string_param)
    advice = loaded.signature.advice
    if advice is None:
        raise FieldError(
            "parameters.advice",
            f"{loaded.stored} declares no advice: give its spec in the parameter `advice`, "
            'such as {"name":"advice","type":"int64_t","shape":[1]}, or in its policy.toml',
        )
    return advice


def _check_outputs(message: pb.ModelInferRequest, advice: TensorSpec) -> None:
    for index, asked in enumerate(message.outputs):
        if asked.name != advice.name:
            raise FieldError(f"outputs[{index}].name", f"there is no output {asked.name!r}; there is {advice.name!r}")


def _rows(layout: Layout, shapes: Mapping[str, Shape], batch: int | None) -> Rows:
    if layout.fixed:
        return PackedRow(layout) if batch in (None, 1) else PackedRows(layout, batch)
    own = [shapes[spec.name] if batch is None else shapes[spec.name][1:] for spec in layout.specs]
    filled = [full_shape(spec, shape) for spec, shape in zip(layout.specs, own, strict=True)]
    return VaryingRows(layout, filled, 1 if batch is None else batch)
