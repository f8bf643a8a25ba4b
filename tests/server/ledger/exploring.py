"""Policies of several kinds for sessions that explore: networks whose sums are exact in floats, in whatever order."""

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from policybridge_serdes import ElementType, Exploration, Signature, TensorSpec, Values, pack
from tests.onnx_models import make_model

FEATURES: Final = tuple(f"f{number}" for number in range(6))

EXPLORATIONS: Final = (
    Exploration(seed=7, temperature=1.0),
    Exploration(seed=2**64 - 1, temperature=0.3, epsilon=0.1),
    Exploration(epsilon=0.5),
)

_TOML: Final = """\
backend = "onnx"
decides = ["here", "also_here", "there"]
"""

_KIND: Final = """
[kinds.{kind}]
settings = {{file = "{kind}.onnx", pack.observation.features = {features}}}

[kinds.{kind}.head]
advice = "{kind}"
"""


def signature_of(kind: str) -> Signature:
    """Give the signature of one kind; each has as many features as its choices and one more."""
    features = [TensorSpec(name, ElementType.INT64, (1,)) for name in FEATURES[: CHOICES[kind] + 1]]
    return Signature.of(features, TensorSpec(kind, ElementType.INT64, (1,)))


CHOICES: Final = {"here": 3, "also_here": 5, "there": 2}
"""Choices of each kind; that of ``there`` has no portable form."""


def write_exploring(repository: Path) -> None:
    """Add the policy ``exploring`` with these kinds, and ``exploring-one`` with the first alone."""
    _write(repository, "exploring", _TOML, CHOICES)
    _write(repository, "exploring-one", 'backend = "onnx"\ndecides = ["here"]\n', ["here"])


def _write(repository: Path, name: str, toml: str, kinds: object) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    for kind in kinds:  # type: ignore[attr-defined]
        onnx.save(_model(kind), folder / f"{kind}.onnx")
        toml += _KIND.format(kind=kind, features=list(FEATURES[: CHOICES[kind] + 1]))
    (repository / name / "policy.toml").write_text(toml.replace("'", '"'))


def _model(kind: str) -> onnx.ModelProto:
    """Score the choices by two layers whose weights are multiples of 1/16."""
    random, choices = np.random.default_rng(len(kind)), CHOICES[kind]
    weights = {
        "w0": (random.integers(-16, 17, (choices + 1, 8)) / 16).astype(np.float32),
        "w1": (random.integers(-16, 17, (8, choices)) / 1024).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["observation", "w0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("MatMul", ["active", "w1"], ["product"]),
    ]
    if kind == "there":
        # An operator without a portable form.
        weights["zero"] = np.zeros(1, np.float32)
        nodes += [
            helper.make_node("Sin", ["product"], ["sine"]),
            helper.make_node("Mul", ["sine", "zero"], ["nothing"]),
            helper.make_node("Add", ["product", "nothing"], ["scores"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["product"], ["scores"]))
    observation: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", choices + 1])
    return make_model(nodes, {"observation": observation}, {"scores": (TensorProto.FLOAT, ["batch", choices])}, weights)


def rows_of(kind: str, count: int, seed: int = 1) -> list[Values]:
    """Give observations of a kind."""
    layout, random = signature_of(kind).features, np.random.default_rng(seed)
    return [
        pack(layout, {spec.name: random.integers(-50, 50, spec.shape) for spec in layout.specs}) for _ in range(count)
    ]
