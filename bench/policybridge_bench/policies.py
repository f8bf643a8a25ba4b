"""The measured policies: one network for each payload, stored for each installed backend."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx

from policybridge_bench.network import make_model, write_network
from policybridge_bench.payloads import payload
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
    """Give the backends that have a policy for the payload; eviction and graph have one only in ONNX and in Python."""
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
        _write_onnx(repository, name, _eviction(signature.features.specs))
    elif payload_name == "graph":
        _write_onnx(repository, name, _graph(), "[settings]\nbatch = false\n")
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


def _eviction(features: Sequence[TensorSpec]) -> onnx.ModelProto:
    inputs = (f"{spec.type.name.lower()}[batch, {', '.join(map(str, spec.shape))}] {spec.name}" for spec in features)
    casts = "\n".join(f"{spec.name}_f = Cast<to = 1>({spec.name})" for spec in features)
    *rows, progress = (f"{spec.name}_f" for spec in features)
    # `progress` is added, because an unused feature would not be an input of the model.
    graph = f"""
        policy ({", ".join(inputs)}) => (int64[batch, 1] inlining_decision) {{
          {casts}
          all = Concat<axis = 1>({", ".join(rows)})
          sums = ReduceSum<keepdims = 0>(all, axis)
          scores = Add(sums, {progress})
          inlining_decision = ArgMax<axis = 1, keepdims = 1>(scores)
        }}"""
    return make_model(graph, {"axis": np.array([1])})


_GRAPH = """
policy (float[nodes, 16] nodes, int64[edges, 2] edges) => (int64[1] inlining_decision) {
  sources = Gather<axis = 1>(edges, zero)
  messages = Gather<axis = 0>(nodes, sources)
  received = ReduceMean<axes = [0], keepdims = 1>(messages)
  own = ReduceMean<axes = [0], keepdims = 1>(nodes)
  graph = Add(received, own)
  scores = MatMul(graph, weight)
  inlining_decision = ArgMax<axis = 1, keepdims = 0>(scores)
}"""


def _graph() -> onnx.ModelProto:
    weight = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    return make_model(_GRAPH, {"zero": np.array(0), "weight": weight})
