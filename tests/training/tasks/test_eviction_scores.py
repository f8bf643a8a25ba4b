"""A linear policy of eviction: asked in this process and served, it decides alike."""

from pathlib import Path

import numpy as np

from policybridge_serdes import Layout, PolicyReference, SessionOptions, Signature, Values
from policybridge_server.embedded import EmbeddedConnection
from policybridge_train.tasks.allocation import POSITIONS, Eviction
from policybridge_train.tasks.eviction_scores import COLUMNS, LIGHTEST, config, evicted, to_onnx
from tests.frameworks import require

require("onnx")

_CHANCE = np.random.default_rng(3)


def observation() -> Values:
    """Make up what LLVM could send: illegal positions, values that are not known, and a last position that is legal."""
    layout = Layout.of(Eviction.features)
    values: Values = np.zeros(1, layout.dtype)
    for name in layout.dtype.names or ():
        drawn = _CHANCE.random(values[name].shape)
        whole = np.issubdtype(values[name].dtype, np.integer)
        values[name] = (3 * drawn).astype(np.int64) if whole else drawn
    # LLVM divides infinity by infinity.
    values["use_def_density"][_CHANCE.random((1, 1, POSITIONS)) < 0.02] = np.nan
    values["mask"] = _CHANCE.random(POSITIONS) < 0.5
    values["mask"][..., -1] = 1
    return values


def test_the_lightest_weights_choose_what_cannot_be_spilled_and_else_the_lightest_live_range() -> None:
    for _ in range(20):
        seen = observation()
        known = np.nan_to_num(seen["use_def_density"].reshape(-1), nan=-1.0)
        densities = np.where(seen["mask"].reshape(-1) != 0, known, np.inf)
        assert evicted(seen, np.array(LIGHTEST)) == int(np.argmin(densities))


def test_a_served_policy_decides_as_its_weights_do(tmp_path: Path) -> None:
    weights = _CHANCE.normal(size=len(COLUMNS))
    (tmp_path / "evict" / "1").mkdir(parents=True)
    (tmp_path / "evict" / "1" / "model.onnx").write_bytes(to_onnx(weights))
    (tmp_path / "evict" / "policy.toml").write_text(config())
    signature = Signature.of(Eviction.features, Eviction.advice)
    with (
        EmbeddedConnection(str(tmp_path), 60) as connection,
        connection.open(PolicyReference("evict"), signature, SessionOptions()) as session,
    ):
        for _ in range(50):
            seen = observation()
            assert session.evaluate(seen)["index_to_evict"].item() == evicted(seen, weights)
    assert to_onnx(weights) == to_onnx(weights.copy())
