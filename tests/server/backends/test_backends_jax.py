"""The worked example of a JAX policy. CI installs no JAX: pip install jax, and this file runs."""

from pathlib import Path

import numpy as np
import pytest

from policybridge_serdes import pack
from tests.frameworks import ADVICE, llvm_observations
from tests.server.backends.backends import evaluate, load

pytest.importorskip("jax")

POLICIES = Path(__file__).parents[3] / "examples" / "jax" / "policies"


def test_the_jax_policy_decides_nearly_as_llvm_does() -> None:
    model = load(POLICIES, "inliner-jax")
    assert model.signature.features is not None
    observations = llvm_observations()[1:1000:2]
    given = []
    for observation in observations:
        tensors = {name: observation[name] for name in model.signature.features.by_name}
        given.append(evaluate(model, pack(model.signature.features, tensors), ADVICE)[ADVICE.name].item())
    wanted = observations["inlining_default"].reshape(-1) != 0
    assert np.mean(np.array(given) == wanted) > 0.97
