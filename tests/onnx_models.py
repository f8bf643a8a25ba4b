"""ONNX models for tests, and policies that hold them."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
from onnx import helper, numpy_helper


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
    opset: int = 17,
) -> onnx.ModelProto:
    """Make a checked model of ``nodes``; inputs and outputs are (ONNX type, shape) by name."""
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    return model
