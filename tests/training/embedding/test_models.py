"""The C of models as exporters write them, beside ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from policybridge_train.embedding.interface import read_policy
from tests.onnx_models import make_model, write_onnx
from tests.training.embedding.programs import build, by_onnx_runtime, decide, needs_compiler, random_observations

FLOAT = TensorProto.FLOAT


def decides_as_onnx_runtime(folder: Path, model: onnx.ModelProto, toml: str = "") -> None:
    """Check a policy of the model on random observations, in C that is compiled without a warning."""
    needs_compiler("gcc")
    write_onnx(folder / "policies", "made", model, toml)
    policy = read_policy("made", folder / "policies")
    observations = random_observations(policy, 100, 0)
    advice, status = decide(build(policy, folder, "gcc"), policy, observations)
    assert not status.any()
    assert advice.tolist() == by_onnx_runtime(policy, observations).tolist()


def test_weights_that_the_file_lists_among_the_inputs_keep_their_shapes(tmp_path: Path) -> None:
    weights = {"w": np.array([[1, 2], [3, 4], [5, 6]], np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["n", 3]), "w": (FLOAT, [3, 2])}
    decides_as_onnx_runtime(tmp_path, make_model([node], inputs, {"y": (FLOAT, ["n", 2])}, weights))
