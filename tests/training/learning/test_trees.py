"""Tree ensembles as policies."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.learning.trees import Trees, TreeSettings, fit, to_onnx

NAMES = ("size", "own", "uses")


def _rows(count: int, seed: int) -> npt.NDArray[np.float32]:
    chance = np.random.default_rng(seed)
    rows = chance.integers(-40, 400, (count, len(NAMES))).astype(np.float32)
    rows[:, 1] = chance.integers(0, 2, count)
    return rows


def _decide(model: bytes, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    decided: npt.NDArray[Any] = session.run(["inline"], {"observation": rows})[0].reshape(-1)
    return decided


@pytest.mark.parametrize("least", [0.5, 4.0, 30.0])
def test_the_policy_departs_from_the_default_where_the_trees_predict_a_gain(least: float) -> None:
    rows = _rows(3000, 0)
    trees = fit(rows, rows[:, 0] - 100 - 20 * (rows[:, 2] > 50), TreeSettings(trees=40))
    unseen = _rows(1000, 1)
    bytes_, own = trees.predict(unseen), unseen[:, 1] == 1
    wanted = np.where(own, bytes_ < least, bytes_ < -least)
    assert (_decide(to_onnx(trees, NAMES, "own", least, "inline"), unseen) == wanted).all()
    assert 0.02 < (wanted != own).mean() < 0.98


def test_without_trees_the_policy_is_the_default() -> None:
    rows = _rows(100, 2)
    assert (_decide(to_onnx(Trees(), NAMES, "own", 4.0, "inline"), rows) == rows[:, 1]).all()


@pytest.mark.parametrize("saved", [0.0, 3.0])
def test_trees_whose_leaves_are_whole_numbers_become_a_policy(saved: float) -> None:
    rows = _rows(100, 2)
    trees = fit(rows, np.full(100, -saved, np.float32), TreeSettings(trees=1, rate=1.0))
    assert (_decide(to_onnx(trees, NAMES, "own", 2.0, "inline"), rows) == (saved > 2) | (rows[:, 1] == 1)).all()


def test_the_same_rows_and_seed_give_the_same_file() -> None:
    rows = _rows(2000, 3)
    first, second = (to_onnx(fit(rows, rows[:, 0], TreeSettings()), NAMES, "own", 1.0, "inline") for _ in range(2))
    assert first == second


def test_a_limit_at_which_nothing_decides_is_refused() -> None:
    with pytest.raises(InvalidError, match="more than 0 bytes, not 0"):
        to_onnx(Trees(), NAMES, "own", 0.0, "inline")
