"""The graph of an ONNX model for one observation, as ONNX Runtime simplifies it."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_serdes import ElementType
from policybridge_server.backends.tensors import Port

_TYPES = {
    onnx.TensorProto.DataType.Value(name): kind
    for name, kind in {
        "FLOAT": ElementType.FLOAT,
        "DOUBLE": ElementType.DOUBLE,
        "BOOL": ElementType.BOOL,
        **{f"INT{bits}": ElementType(f"int{bits}_t") for bits in (8, 16, 32, 64)},
        **{f"UINT{bits}": ElementType(f"uint{bits}_t") for bits in (8, 16, 32, 64)},
    }.items()
}


@dataclass(frozen=True)
class Node:
    """One operator: its name in ONNX, its inputs (empty where one is left out), its outputs and attributes."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Graph:
    """A model for one observation.

    Attributes:
        ports: the inputs as the file declares them.
        outputs: the outputs likewise.
        nodes: in an order in which each can be computed.
        constants: the tensors that do not depend on the observation.
        opset: of ONNX's own operators.

    """

    ports: Sequence[Port]
    outputs: Sequence[Port]
    nodes: Sequence[Node]
    constants: Mapping[str, npt.NDArray[Any]]
    opset: int


def read_ports(model: onnx.ModelProto) -> tuple[list[Port], list[Port]]:
    """Give the inputs and the outputs that the model's file declares.

    Raises:
        UnsupportedError: an input has an element type for which there is none in C.

    """
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    for each in inputs:
        if each.type.tensor_type.elem_type not in _TYPES:
            kind = onnx.TensorProto.DataType.Name(each.type.tensor_type.elem_type)
            raise UnsupportedError(f"the model's input {each.name} is of the type {kind}, which has no form in C")
    return [_port(each) for each in inputs], [_port(each) for each in model.graph.output]


def _port(value: Any) -> Port:
    tensor = value.type.tensor_type
    if tensor.elem_type not in _TYPES:
        # Such an output may be there without being the advice; `Port.dims` is all that is asked of it.
        return Port(value.name, ElementType.STRING, [])
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return Port(value.name, _TYPES[tensor.elem_type], dims)


def read_graph(file: Path, *, batched: bool) -> Graph:
    """Read the model in ``file`` for one observation; ``batched``: the first dimension of its inputs counts them.

    ONNX Runtime folds constants, which takes all arithmetic of shapes out of the graph.

    Raises:
        PreconditionError: ONNX Runtime cannot load the model.

    """
    try:
        model = onnx.load(str(file))
    except Exception as error:
        raise PreconditionError(f"{file.name}: {error}") from error
    ports, outputs = read_ports(model)
    if batched:
        # Files of IR version 3 list the weights among the inputs; their first dimension counts no observations.
        weights = {each.name for each in model.graph.initializer}
        for value in model.graph.input:
            if value.name not in weights and value.type.tensor_type.shape.dim:
                value.type.tensor_type.shape.dim[0].dim_value = 1
    for value in model.graph.output:
        # A classifier's ZipMap is no tensor: clearing a shape that it has not would make it one.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    simple = _simplified(model)
    constants = {each.name: numpy_helper.to_array(each) for each in simple.graph.initializer}
    opset = next((each.version for each in simple.opset_import if each.domain in ("", "ai.onnx")), 1)
    return Graph(ports, outputs, [_node(each) for each in simple.graph.node], constants, opset)


def _simplified(model: onnx.ModelProto) -> onnx.ModelProto:
    del model.graph.value_info[:]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # Beyond this level come operators of ONNX Runtime's own, for the processor at hand.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory(prefix="pb-embed-") as folder:
        options.optimized_model_filepath = f"{folder}/simple.onnx"
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise PreconditionError(f"ONNX Runtime cannot load the model: {error}") from error
        return onnx.load(options.optimized_model_filepath)


def _node(node: onnx.NodeProto) -> Node:
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    for name, value in attributes.items():
        if isinstance(value, onnx.TensorProto):
            attributes[name] = np.asarray(numpy_helper.to_array(value))
    operator = node.op_type if node.domain in ("", "ai.onnx", "ai.onnx.ml") else f"{node.domain}.{node.op_type}"
    return Node(operator, list(node.input), list(node.output), attributes)
