"""A small classifier as an ONNX file, built by hand: torch's own exporter needs several packages more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]

OPSET = 13
IR_VERSION = 8
"""Old enough for every ONNX Runtime that we support."""


@dataclass(frozen=True)
class Layer:
    """A linear layer: ``x @ weight.T + bias``."""

    weight: Array
    bias: Array


def write_classifier(file: Path, limit: float, layers: Sequence[Layer], advice: str) -> None:
    """Write the model: the number of the largest of the last layer's outputs, with a ReLU between layers.

    Each feature is cut off at ±``limit``.
    """
    constants = {"limit": limit, "minus_limit": -limit}
    weights = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    for number, layer in enumerate(layers):
        weights.append(numpy_helper.from_array(layer.weight, f"weight{number}"))
        weights.append(numpy_helper.from_array(layer.bias, f"bias{number}"))
    width = layers[0].weight.shape[1]
    taken = helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", width])
    given = helper.make_tensor_value_info(advice, TensorProto.INT64, ["batch", 1])
    clip = helper.make_node("Clip", ["observation", "minus_limit", "limit"], ["hidden0"])
    nodes = [clip, *_classify(len(layers), advice)]
    graph = helper.make_graph(nodes, "policy", [taken], [given], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    file.write_bytes(model.SerializeToString(deterministic=True))


def _classify(layers: int, advice: str) -> Iterator[NodeProto]:
    for number in range(layers):
        inputs = [f"hidden{number}", f"weight{number}", f"bias{number}"]
        yield helper.make_node("Gemm", inputs, [f"linear{number}"], transB=1)
        if number < layers - 1:
            yield helper.make_node("Relu", [f"linear{number}"], [f"hidden{number + 1}"])
    yield helper.make_node("ArgMax", [f"linear{layers - 1}"], [advice], axis=1, keepdims=1)
