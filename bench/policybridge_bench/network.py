"""The network that every measurement uses: 38 int64 features → 38-64-64-20-2 → argmax, the size of MLGO's inliner."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from policybridge_bench.payloads import FEATURES, SIGNATURE, observations
from policybridge_demo.export.policy import pack_toml

__all__ = ["FEATURES", "SIGNATURE", "make_model", "make_network", "observations", "write_network"]

_SIZES: Final = (38, 64, 64, 20, 2)
_NETWORK: Final = """\
network ({inputs}) => (int64[batch, 1] inlining_decision) {{
  {joined}
  g0 = Gemm(observation, w0, b0)
  r0 = Relu(g0)
  g1 = Gemm(r0, w1, b1)
  r1 = Relu(g1)
  g2 = Gemm(r1, w2, b2)
  r2 = Relu(g2)
  g3 = Gemm(r2, w3, b3)
  inlining_decision = ArgMax<axis = 1, keepdims = 1>(g3)
}}
"""


def make_model(graph: str, weights: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """Make a model of a ``graph`` in ONNX's text form and of its ``weights`` by their names there."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {graph}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.checker.check_model(model)
    return model


def make_network(*, packed: bool) -> onnx.ModelProto:
    """Make it with fixed random weights, with one packed float input or with 38 named int64 inputs."""
    if packed:
        inputs, joined = "float[batch, 38] observation", ""
    else:
        inputs = ", ".join(f"int64[batch, 1] {name}" for name in FEATURES)
        joined = f"together = Concat<axis = 1>({', '.join(FEATURES)}) observation = Cast<to = 1>(together)"
    return make_model(_NETWORK.format(inputs=inputs, joined=joined), _weights())


def _weights() -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    weights: dict[str, np.ndarray[Any, Any]] = {}
    for layer, (width, height) in enumerate(pairwise(_SIZES)):
        weights[f"w{layer}"] = (generator.normal(size=(width, height)) / np.sqrt(width)).astype(np.float32)
        weights[f"b{layer}"] = generator.normal(size=height).astype(np.float32)
    return weights


def write_network(repository: Path, name: str, *, packed: bool = True, version: int = 1) -> None:
    """Add it to a policy repository."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    onnx.save(make_network(packed=packed), folder / "model.onnx")
    (repository / name / "policy.toml").write_text('backend = "onnx"\n' + (pack_toml(FEATURES) if packed else ""))
