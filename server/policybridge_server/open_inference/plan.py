"""A plan: all that can be found out about requests of one form before their values come."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import PolicyFailedError, UnsupportedError
from policybridge_serdes import ElementType, Layout, PolicyVersion, Signature, TensorSpec, Values
from policybridge_serdes.values import Row, tensor
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.grpc.field_error import FieldError
from policybridge_server.open_inference.batching import batch_size, full_shape
from policybridge_server.open_inference.datatypes import advice_from_json, datatype_of, kind_of, raw_elements
from policybridge_server.open_inference.declared import Declared, declared_inputs
from policybridge_server.open_inference.rows import PackedRow, PackedRows, Rows, VaryingRows

_LARGEST_ELEMENTS: Final = 2**40
"""Of a shape; beyond it even tensors without elements could not be held."""

Shape = tuple[int, ...]


@dataclass
class Plan:
    """How requests of one form are read, evaluated and answered. Made by ``make_plan``.

    Attributes:
        signature: what the engine is asked by.
        batcher: of all who ask by it.
        batch: how many observations a batch has; ``None`` for one observation that is no batch.
        rows: reads them.
        policy: who answers.
        used: whether it was since somebody looked.

    """

    signature: Signature
    batcher: Batcher
    batch: int | None
    rows: Rows
    policy: PolicyVersion
    used: bool = True
    _outputs: Sequence[pb.ModelInferResponse.InferOutputTensor] = field(init=False)

    def __post_init__(self) -> None:
        advice = self.signature.advice
        self._version = str(self.policy.version)
        self._outputs = [self._output(advice.shape)] if advice.fixed else []

    def _output(self, shape: Sequence[int]) -> pb.ModelInferResponse.InferOutputTensor:
        advice = self.signature.advice
        full = shape if self.batch is None else (self.batch, *shape)
        return pb.ModelInferResponse.InferOutputTensor(name=advice.name, datatype=datatype_of(advice.type), shape=full)

    def make_rows(self, payloads: Sequence[bytes]) -> list[Row]:
        """Read the observations.

        Raises:
            InvalidError: a payload is not that of its input.

        """
        self.used = True
        return self.rows.make(payloads)

    def respond(self, request_id: str, advices: Sequence[Values]) -> pb.ModelInferResponse:
        """Write the reply.

        Raises:
            PolicyFailedError: the answers of a batch differ in shape.

        """
        outputs = self._outputs
        if outputs:
            raw = advices[0].tobytes() if len(advices) == 1 else b"".join(each.tobytes() for each in advices)
        else:
            arrays = [tensor(self.signature.advice, each) for each in advices]
            if len({array.shape for array in arrays}) != 1:
                shapes = ", ".join(str(list(array.shape)) for array in arrays)
                raise PolicyFailedError(f"the answers of this batch differ in shape: {shapes}; ask one by one")
            outputs = [self._output(arrays[0].shape)]
            raw = raw_elements(self.signature.advice, np.stack(arrays))
        return pb.ModelInferResponse(
            model_name=self.policy.name,
            model_version=self._version,
            id=request_id,
            outputs=outputs,
            raw_output_contents=[raw],
        )


def make_plan(form: bytes, loaded: LoadedVersion, due: Callable[[Batcher], None]) -> Plan:
    """Plan for the requests of this ``form`` (see ``Asked``).

    Raises:
        InvalidError: it does not fit the policy; the message names both sides.
        UnsupportedError: it asks for what there is not.

    """
    message = pb.ModelInferRequest.FromString(form)
    _check_supported(message)
    declared = declared_inputs(loaded)
    shapes = {given.name: _shape(given) for given in message.inputs}
    batch = _batch(declared, shapes)
    specs = [_spec(given, shapes[given.name], declared, batch) for given in message.inputs]
    signature = Signature(Layout.of(specs), _advice(message, loaded))
    _check_outputs(message, signature.advice)
    return Plan(
        signature, loaded.batcher(signature, due), batch, _rows(signature.features, shapes, batch), loaded.stored.policy
    )


def _check_supported(message: pb.ModelInferRequest) -> None:
    for index, given in enumerate(message.inputs):
        if "shared_memory_region" in given.parameters:
            raise UnsupportedError(f"{given.name}: there is no shared memory here; send the contents")
        # Contents that are left in the form stand beside raw ones.
        if given.HasField("contents"):
            raise FieldError(
                f"inputs[{index}].contents", f"{given.name} has `contents` beside `raw_input_contents`; one is right"
            )
    for asked in message.outputs:
        if asked.parameters.keys() & {"shared_memory_region", "classification"}:
            raise UnsupportedError(f"{asked.name}: neither shared memory nor classification is offered here")


def _shape(given: pb.ModelInferRequest.InferInputTensor) -> Shape:
    shape = tuple(given.shape)
    elements = 1
    for size in shape:
        elements *= max(size, 1)
    if any(size < 0 for size in shape) or elements > _LARGEST_ELEMENTS:
        raise FieldError(f"inputs[{given.name}].shape", f"{given.name}: no tensor has the shape {list(shape)}")
    return shape


def _batch(declared: Mapping[str, Declared] | None, shapes: Mapping[str, Shape]) -> int | None:
    known = [(declared[name].spec, shape) for name, shape in shapes.items() if declared and name in declared]
    return batch_size(known) if known else None


def _spec(
    given: pb.ModelInferRequest.InferInputTensor,
    shape: Shape,
    declared: Mapping[str, Declared] | None,
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
            f"{loaded.stored} gives whatever advice is asked for: say which in the parameter `advice`, "
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
