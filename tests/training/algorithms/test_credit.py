"""Credit: how trees are fitted to the flips of a run."""

import msgspec
import numpy as np

from policybridge_train.algorithms.credit import FEATURES, Settings, fitted
from policybridge_train.learning.trees import Trees

_FLIPS = 400


def trees(largest: float, most: float) -> Trees:
    """Fit trees to flips of up to 40 bytes, but for one of ``largest``."""
    chance = np.random.default_rng(0)
    rows = chance.integers(0, 100, (_FLIPS, len(FEATURES))).astype(np.float32)
    saved = chance.integers(-40, 40, _FLIPS).astype(np.float32)
    saved[7] = largest
    labels = {"rows": rows, "bytes": saved, "weights": np.ones(_FLIPS, np.float32)}
    piece = msgspec.msgpack.encode({name: each.tobytes() for name, each in labels.items()})
    return fitted([piece], Settings(trees=5, leaves=4, most=most), seed=0)


def test_a_flip_counts_no_more_than_the_setting_most() -> None:
    assert trees(5000, most=50).nodes == trees(50, most=50).nodes
    assert trees(5000, most=9999).nodes != trees(50, most=9999).nodes
