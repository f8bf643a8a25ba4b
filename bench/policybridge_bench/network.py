"""The network that every measurement uses: 38 int64 features → 38-64-64-20-2 → argmax, the size of MLGO's inliner."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.inliner import FEATURES, SIGNATURE, observations

__all__ = ["FEATURES", "SIGNATURE", "make_network", "observations", "write_network"]

_SIZES = (38, 64, 64, 20, 2)


def make_network(*, packed: bool) -> onnx.ModelProto:
    """Make it with fixed random weights, with one packed float input or with 38 named int64 inputs."""
    nodes, weights, current = _layers()
    named = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", 1]) for name in FEATURES]
    one = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", 38])]
    if not packed:
        together = helper.make_node("Concat", FEATURES, ["together"], axis=1)
        nodes = [together, helper.make_node("Cast", ["together"], ["observation"], to=TensorProto.FLOAT), *nodes]
    nodes.append(helper.make_node("ArgMax", [current], ["inlining_decision"], axis=1, keepdims=1))
    advice = helper.make_tensor_value_info("inlining_decision", TensorProto.INT64, ["batch", 1])
    graph = helper.make_graph(nodes, "network", one if packed else named, [advice], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _layers() -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], str]:
    generator = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    current = "observation"
    for layer, (width, height) in enumerate(pairwise(_SIZES)):
        weight = (generator.normal(size=(width, height)) / np.sqrt(width)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        weights.append(numpy_helper.from_array(generator.normal(size=height).astype(np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Gemm", [current, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        current = f"g{layer}"
        if layer < len(_SIZES) - 2:
            nodes.append(helper.make_node("Relu", [current], [f"r{layer}"]))
            current = f"r{layer}"
    return nodes, weights, current


def write_network(repository: Path, name: str, *, packed: bool = True, version: int = 1) -> None:
    """Add it to a policy repository."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    onnx.save(make_network(packed=packed), folder / "model.onnx")
    pack = f"[settings.pack.observation]\nfeatures = {FEATURES}\n" if packed else ""
    (repository / name / "policy.toml").write_text(f'backend = "onnx"\n{pack}')
