"""The policies that are asked: one network for each payload, stored for each backend that is installed."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from policybridge_bench.network import write_network
from policybridge_bench.payloads import PAYLOADS, payload
from policybridge_demo.export.formats import FORMATS
from policybridge_demo.export.network import Layer, Network
from policybridge_demo.export.policy import declare_network, policy_folder, write_policy
from policybridge_serdes import Signature, TensorSpec

NAMED = "onnx-named"
"""ONNX Runtime with an input per feature instead of one packed input."""

_PYTHON = '''"""Answers 1 where the numbers of one feature add up to more than 0."""


class Policy:
    def evaluate(self, observation, session):
        return int(observation[{name!r}].sum() > 0)
'''
_SIZES = (64, 64, 20, 2)


def backends() -> list[str]:
    """Give the backends that can be measured here, by the names that ``--backends`` takes."""
    there = [name for name, stored in FORMATS.items() if all(find_spec(package) for package in stored.packages)]
    return [*there, NAMED, "python"]


def backends_of(payload_name: str) -> list[str]:
    """Give the backends that have a policy for the payload; eviction and graph have one in ONNX and in Python alone."""
    if payload_name == "inliner":
        return backends()
    if payload_name in ("eviction", "graph"):
        return ["onnx", "python"]
    return [name for name in backends() if name != NAMED]


def policy_name(payload_name: str, backend: str) -> str:
    """Give the name of a policy in the repositories that `write_policies` makes."""
    return f"{payload_name}-{backend}"


def write_policies(repository: Path, payloads: Sequence[str], wanted: Sequence[str]) -> None:
    """Make a repository with a policy for each payload and backend."""
    for name in payloads:
        for backend in wanted:
            if backend in backends_of(name):
                _write(repository, name, backend)


def _write(repository: Path, payload_name: str, backend: str) -> None:
    name, signature = policy_name(payload_name, backend), payload(payload_name).signature
    if backend == "python":
        folder = policy_folder(repository, name, "python", "inline = true\n")
        (folder / "policy.py").write_text(_PYTHON.format(name=signature.features.specs[0].name))
    elif payload_name == "eviction":
        _write_onnx(repository, name, _eviction(signature))
    elif payload_name == "graph":
        _write_onnx(repository, name, _graph(signature), "[settings]\nbatch = false\n")
    elif payload_name == "inliner" and backend in ("onnx", NAMED):
        write_network(repository, name, packed=backend == "onnx")
    elif payload_name == "inliner":
        write_policy(repository, name, _network(signature), list(signature.features.by_name), FORMATS[backend])
    else:
        stored = FORMATS[backend]
        toml = declare_network(_network(signature)) if stored.declared else ""
        stored.load()(_network(signature), policy_folder(repository, name, stored.backend, toml))


def _network(signature: Signature) -> Network:
    # With a payload as wide as 64 KiB, sending is measured and not multiplying, so one layer is enough.
    width = sum(spec.count for spec in signature.features.specs)
    return Network(list(_layers(width, _SIZES if width < 1000 else _SIZES[-1:])), signature.advice.name)


def _layers(width: int, heights: Sequence[int]) -> Iterator[Layer]:
    generator = np.random.default_rng(0)
    for height in heights:
        weight = generator.normal(size=(height, width)) / np.sqrt(width)
        yield Layer(weight.astype(np.float32), generator.normal(size=height).astype(np.float32))
        width = height


def _write_onnx(repository: Path, name: str, model: onnx.ModelProto, toml: str = "") -> None:
    onnx.save(model, policy_folder(repository, name, "onnx", toml) / "model.onnx")


def _eviction(signature: Signature) -> onnx.ModelProto:
    specs = signature.features.specs
    kinds = {spec.name: helper.np_dtype_to_tensor_dtype(spec.type.dtype) for spec in specs}
    inputs = [helper.make_tensor_value_info(s.name, kinds[s.name], ["batch", *s.shape]) for s in specs]
    casts = [helper.make_node("Cast", [s.name], [f"{s.name}_f"], to=TensorProto.FLOAT) for s in specs]
    nodes = [
        *casts,
        helper.make_node("Concat", [f"{s.name}_f" for s in specs[:-1]], ["all"], axis=1),
        helper.make_node("ReduceSum", ["all", "axis"], ["sums"], keepdims=0),
        # `progress` is added, because an unused feature would not be an input of the model.
        helper.make_node("Add", ["sums", f"{specs[-1].name}_f"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], [signature.advice.name], axis=1, keepdims=1),
    ]
    return _model(nodes, inputs, signature.advice, ["batch", 1], [numpy_helper.from_array(np.array([1]), "axis")])


def _graph(signature: Signature) -> onnx.ModelProto:
    nodes_spec, edges_spec = signature.features.specs
    inputs = [
        helper.make_tensor_value_info(nodes_spec.name, TensorProto.FLOAT, ["nodes", nodes_spec.shape[1]]),
        helper.make_tensor_value_info(edges_spec.name, TensorProto.INT64, ["edges", edges_spec.shape[1]]),
    ]
    weight = np.random.default_rng(0).normal(size=(nodes_spec.shape[1], 2)).astype(np.float32)
    zero = numpy_helper.from_array(np.array(0), "zero")
    nodes = [
        helper.make_node("Gather", [edges_spec.name, "zero"], ["sources"], axis=1),
        helper.make_node("Gather", [nodes_spec.name, "sources"], ["messages"], axis=0),
        helper.make_node("ReduceMean", ["messages"], ["received"], axes=[0], keepdims=1),
        helper.make_node("ReduceMean", [nodes_spec.name], ["own"], axes=[0], keepdims=1),
        helper.make_node("Add", ["received", "own"], ["graph"]),
        helper.make_node("MatMul", ["graph", "weight"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], [signature.advice.name], axis=1, keepdims=0),
    ]
    return _model(nodes, inputs, signature.advice, [1], [zero, numpy_helper.from_array(weight, "weight")])


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    advice: TensorSpec,
    shape: list[int | str],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    output = helper.make_tensor_value_info(advice.name, TensorProto.INT64, shape)
    graph = helper.make_graph(nodes, "policy", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


__all__ = ["NAMED", "PAYLOADS", "backends", "backends_of", "policy_name", "write_policies"]
