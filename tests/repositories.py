"""Policy repositories for tests, written as a user would write them."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES = [f"f{index}" for index in range(38)]


def write_python(repository: Path, name: str, source: str, toml: str = "", version: int = 1) -> None:
    """Add a Python policy: the body of its file, and what policy.toml says beside the backend."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text(dedent(source))
    (repository / name / "policy.toml").write_text(f'backend = "python"\n{dedent(toml)}')


def answering(expression: str) -> str:
    """Give the source of a policy that answers ``expression`` of ``observation`` and ``session``."""
    return f"class Policy:\n    def evaluate(self, observation, session):\n        return {expression}\n"


def write_onnx(repository: Path, name: str, model: onnx.ModelProto, toml: str = "", version: int = 1) -> Path:
    """Add an ONNX policy and give the path of its model."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (repository / name / "policy.toml").write_text(f'backend = "onnx"\n{dedent(toml)}')
    return folder / "model.onnx"


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[int | str]]],
    outputs: Mapping[str, tuple[int, list[int | str]]],
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """Make a checked model of ``nodes``; inputs and outputs are (ONNX type, shape) by name."""
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def mlp(*, packed: bool) -> onnx.ModelProto:
    """Make the 38-64-64-20-2 network with an argmax, over one packed input or 38 named ones."""
    generator = np.random.default_rng(0)
    sizes = [38, 64, 64, 20, 2]
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []
    current = "observation"
    if not packed:
        nodes.append(helper.make_node("Concat", FEATURES, ["together"], axis=1))
        nodes.append(helper.make_node("Cast", ["together"], ["observation"], to=TensorProto.FLOAT))
    for layer, (width, height) in enumerate(pairwise(sizes)):
        weights[f"w{layer}"] = (generator.normal(size=(width, height)) / np.sqrt(width)).astype(np.float32)
        weights[f"b{layer}"] = generator.normal(size=height).astype(np.float32)
        nodes.append(helper.make_node("Gemm", [current, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        current = f"g{layer}"
        if layer < 3:
            nodes.append(helper.make_node("Relu", [current], [f"r{layer}"]))
            current = f"r{layer}"
    nodes.append(helper.make_node("ArgMax", [current], ["inlining_decision"], axis=1, keepdims=1))
    named: dict[str, tuple[int, list[int | str]]] = {name: (TensorProto.INT64, ["batch", 1]) for name in FEATURES}
    one: dict[str, tuple[int, list[int | str]]] = {"observation": (TensorProto.FLOAT, ["batch", 38])}
    return make_model(
        nodes, one if packed else named, {"inlining_decision": (TensorProto.INT64, ["batch", 1])}, weights
    )


def write_mlp(repository: Path, name: str = "mlp", version: int = 1) -> None:
    """Add the packed network as a policy over FEATURES."""
    toml = f"[settings.pack.observation]\nfeatures = {FEATURES}\n"
    write_onnx(repository, name, mlp(packed=True), toml, version)
