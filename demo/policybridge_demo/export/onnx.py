"""A network as an ONNX file, built node by node: torch's exporter would need several more packages."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from policybridge_demo.export.network import Layer, Network

OPSET = 13
IR_VERSION = 8
"""Old enough for every ONNX Runtime that we support."""


def write_onnx(network: Network, folder: Path) -> None:
    """Write ``model.onnx``."""
    save_network(network, folder / "model.onnx")


def save_network(network: Network, file: Path) -> None:
    """Write the network to a file; the same network always gives the same bytes."""
    sizes, kind = network.sizes, TensorProto.INT64 if network.decide else TensorProto.FLOAT
    taken = helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", sizes[0]])
    given = helper.make_tensor_value_info(network.advice, kind, ["batch", 1 if network.decide else sizes[-1]])
    clip = helper.make_node("Clip", ["observation", "minus_limit", "limit"], ["hidden0"])
    graph = helper.make_graph([clip, *_nodes(network)], "policy", [taken], [given], [*_weights(network)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    file.write_bytes(model.SerializeToString(deterministic=True))


def _weights(network: Network) -> Iterator[TensorProto]:
    yield numpy_helper.from_array(np.array(network.limit, np.float32), "limit")
    yield numpy_helper.from_array(np.array(-network.limit, np.float32), "minus_limit")
    for number, layer in enumerate(network.layers):
        yield numpy_helper.from_array(layer.weight, f"weight{number}")
        yield numpy_helper.from_array(layer.bias, f"bias{number}")


def _nodes(network: Network) -> Iterator[NodeProto]:
    last = len(network.layers) - 1
    for number in range(len(network.layers)):
        inputs = [f"hidden{number}", f"weight{number}", f"bias{number}"]
        plain = number == last and not network.decide
        yield helper.make_node("Gemm", inputs, [network.advice if plain else f"linear{number}"], transB=1)
        if number < last:
            yield helper.make_node("Relu", [f"linear{number}"], [f"hidden{number + 1}"])
    if network.decide:
        yield helper.make_node("ArgMax", [f"linear{last}"], [network.advice], axis=1, keepdims=1)


def read_network(file: Path) -> Network:
    """Read a network that ``save_network`` has written."""
    graph = onnx.load(file).graph
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    numbers = range(sum(name.startswith("weight") for name in tensors))
    layers = [Layer(tensors[f"weight{number}"], tensors[f"bias{number}"]) for number in numbers]
    decide = graph.node[-1].op_type == "ArgMax"
    return Network(layers, graph.output[0].name, float(tensors["limit"]), decide=decide)
