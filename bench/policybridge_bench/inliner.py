"""The inliner's observations. Clients import this module, so it must not import ONNX, which takes a second."""

import numpy as np
import numpy.typing as npt

from policybridge_serdes import ElementType, Signature, TensorSpec

FEATURES = [f"f{index}" for index in range(38)]
SIGNATURE = Signature.of(
    [TensorSpec(name, ElementType.INT64) for name in FEATURES], TensorSpec("inlining_decision", ElementType.INT64)
)


def observations(count: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """Give random observations, shape [count, 38], on which both advices occur."""
    return np.random.default_rng(seed).integers(-50, 50, (count, 38))
