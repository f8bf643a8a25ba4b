"""One network, written with each framework; and what to do in a test where a framework is missing."""

import os
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from policybridge_demo.export.formats import FORMATS
from policybridge_demo.export.network import Layer, Network
from policybridge_demo.export.policy import write_policy
from policybridge_serdes import ElementType, Layout, TensorSpec, Values

ADVICE = TensorSpec("inlining_decision", ElementType.INT64)
LOGITS = TensorSpec("logits", ElementType.FLOAT, (2,))
HEIGHTS = (64, 64, 20, 2)


def require(module: str) -> None:
    """Skip the tests of this file where ``module`` is not installed; fail where all frameworks must be."""
    if find_spec(module) is None:
        missing = f"the Python package {module!r} is not installed"
        if os.environ.get("POLICYBRIDGE_REQUIRE_FRAMEWORKS"):
            pytest.fail(f"{missing}, and POLICYBRIDGE_REQUIRE_FRAMEWORKS is set", pytrace=False)
        pytest.skip(missing, allow_module_level=True)


@cache
def llvm_observations() -> Values:
    """Give 10,000 observations of LLVM's inliner, and what it decided by itself (``inlining_default``).

    It made them at -Oz in the demo's modules: parts of musl, libc++, libunwind and the thread sanitizer, as ziglang has
    them. They are distinct, chosen at random from 42,630 that were, and kept in the compilation's order.
    """
    columns = np.load(Path(__file__).parent / "data" / "observations.npz")
    layout = Layout.of(TensorSpec(name, ElementType.INT64) for name in columns.files)
    values: Values = np.zeros(len(columns[columns.files[0]]), layout.dtype)
    for name in columns.files:
        values[name] = columns[name][:, np.newaxis]
    return values


def feature_names() -> list[str]:
    return list(llvm_observations().dtype.names or ())


@cache
def layers() -> list[Layer]:
    """Give the network's weights: the first layer brings each feature to the size of one."""
    generator = np.random.default_rng(4)
    values = np.stack([llvm_observations()[name].reshape(-1) for name in feature_names()], axis=1)
    scale = 1 / (values.std(axis=0) + 1)
    made: list[Layer] = []
    for width, height in pairwise((len(scale), *HEIGHTS)):
        weight = generator.normal(size=(width, height)) / np.sqrt(width)
        weight = weight * scale[:, np.newaxis] if not made else weight
        bias = generator.normal(size=height, scale=0.1)
        made.append(Layer(np.ascontiguousarray(weight.T, np.float32), bias.astype(np.float32)))
    return made


def network(advice: TensorSpec = ADVICE) -> Network:
    return Network(layers(), advice.name, decide=advice is ADVICE)


@cache
def expected_decisions() -> npt.NDArray[np.int64]:
    """Give what the network decides on ``llvm_observations``, computed with twice the digits."""
    current = np.stack([llvm_observations()[name].reshape(-1) for name in feature_names()], axis=1).astype(np.float64)
    for number, layer in enumerate(layers()):
        current = current @ layer.weight.T.astype(np.float64) + layer.bias
        current = np.maximum(current, 0) if number < len(HEIGHTS) - 1 else current
    decisions: npt.NDArray[np.int64] = current.argmax(axis=1)
    return decisions


def write_network(repository: Path, name: str, form: str, advice: TensorSpec = ADVICE) -> None:
    """Add the network as ``FORMATS[form]`` stores it, with its decision, or its logits, for advice."""
    write_policy(repository, name, network(advice), feature_names(), FORMATS[form])
