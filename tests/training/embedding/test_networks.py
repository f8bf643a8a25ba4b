"""The C of random networks of every operator, beside ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_server.forms.computing import OPERATORS
from policybridge_server.forms.graph import read_graph
from policybridge_train.embedding.interface import read_policy
from tests.training.embedding.networks import BLOCKS, FEATURES, random_network, random_trees, write_network
from tests.training.embedding.programs import build, by_onnx_runtime, decide, needs_compiler, random_observations

REMOVED = {"Dropout", "Identity"}
"""ONNX Runtime takes them out of every graph."""


@pytest.mark.parametrize(("seed", "compiler"), [(1, "gcc"), (2, "clang-22")])
def test_a_random_network_of_every_operator_decides_in_c_as_in_onnx_runtime(
    tmp_path: Path, seed: int, compiler: str
) -> None:
    needs_compiler(compiler)
    policy = read_policy("net", write_network(tmp_path / "policies", "net", random_network(seed)))
    graph = read_graph(policy.version.folder / "model.onnx", batched=True)
    missing = set(OPERATORS) - {node.operator for node in graph.nodes}
    assert missing - REMOVED <= {"LogSoftmax"}
    observations = random_observations(policy, 300, seed)
    advice, status = decide(build(policy, tmp_path, compiler), policy, observations)
    assert not status.any()
    np.testing.assert_allclose(advice, by_onnx_runtime(policy, observations), rtol=2e-4, atol=2e-6)


def test_trees_give_the_same_bits_as_onnx_runtime(tmp_path: Path) -> None:
    needs_compiler("gcc")
    attributes: dict[str, Any] = random_trees(np.random.default_rng(0), 40, 1, "target")
    node = helper.make_node(
        "TreeEnsembleRegressor", ["observation"], ["sum"], domain="ai.onnx.ml", n_targets=1, **attributes
    )
    graph = helper.make_graph(
        [node],
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    policy = read_policy("net", write_network(tmp_path / "policies", "net", model))
    observations = random_observations(policy, 1000, 0)
    advice, status = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert not status.any()
    assert advice.tobytes() == by_onnx_runtime(policy, observations).tobytes()


def test_every_block_of_the_random_networks_can_stand_alone(tmp_path: Path) -> None:
    for place, block in enumerate(BLOCKS):
        model = random_network(place, [block])
        read_policy("net", write_network(tmp_path / str(place), "net", model))
