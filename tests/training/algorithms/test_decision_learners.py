"""The algorithms that learn yes/no decisions, on a task that is quick to compile, with a real server and ledger."""

import re
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from policybridge_train.algorithms.bcmax import best
from policybridge_train.compiling.result import CompileResult
from policybridge_train.learning.network import Layer, Network, Scaling, yes_no_features
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.rewards import extra_costs
from policybridge_train.tasks.task import Case
from policybridge_train.trajectories.trajectory import Trajectory
from tests.training.algorithms import runs
from tests.training.algorithms.runs import iterations
from tests.training.algorithms.toy import Toy


def train(folder: Path, algorithm: str, *settings: str, options: tuple[str, ...] = ()) -> str:
    """Train the toy, and give what was said."""
    words = [*options, *(word for setting in settings for word in ("--set", setting))]
    status, said = runs.train(algorithm, "tests.training.algorithms.toy:Toy", folder, *words)
    assert status == 0, said
    return said


def texts(found: list[Iteration]) -> list[float]:
    return [sum(costs["text"] for costs in each.costs.values()) for each in found]


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("es", ("iterations=4", "cases=20", "sets=32", "rate=0.8", "sigma=0.8")),
        ("es", ("iterations=3", "cases=8", "reward=module", "pairs=2", "rate=0.8", "sigma=0.5")),
        ("ppo", ("iterations=3", "cases=8", "lean=1", "rate=0.05", "batch=32")),
        ("bcmax", ("iterations=2", "cases=20", "draws=8", "lean=1", "rate=0.05", "batch=32")),
    ],
)
def test_an_algorithm_finds_decisions_that_are_better_than_the_default(
    tmp_path: Path, algorithm: str, settings: tuple[str, ...]
) -> None:
    train(tmp_path / "run", algorithm, *settings)
    found = texts(iterations(tmp_path / "run"))
    assert min(found) < found[0]


def test_a_run_goes_on_as_if_it_had_not_been_ended(tmp_path: Path) -> None:
    settings = ("iterations=2", "cases=4", "sets=16")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, "es", *settings)
    # No iteration begins after this time but the first.
    train(parts, "es", *settings, options=("--minutes", "0"))
    assert len(iterations(parts)) == 1
    train(parts, "es", *settings)
    assert [each.digest for each in iterations(parts)] == [each.digest for each in iterations(whole)]


def test_a_clone_decides_as_the_compiler_without_being_told(tmp_path: Path) -> None:
    said = train(tmp_path / "run", "bc", "epochs=2")
    assert re.search(r"100\.00 % of [0-9]+ decisions are the compiler's own", said)
    first, second = texts(iterations(tmp_path / "run"))
    assert first == second


def test_a_clone_never_sees_the_compilers_own_decision(tmp_path: Path) -> None:
    train(tmp_path, "bc", "epochs=2", options=("--option", "own=chance"))
    clone = iterations(tmp_path)[1]
    # It would be 1 if the decision were seen.
    assert clone.settings["agreement"] < 0.8
    names = yes_no_features(Toy())
    rows = np.random.default_rng(0).normal(scale=50, size=(100, len(names))).astype(np.float32)
    model = ort.InferenceSession(tmp_path / "policies" / "toy" / str(clone.version) / "model.onnx")
    scores = []
    for own in (0, 1):
        rows[:, names.index(Toy.default)] = own
        scores.append(model.run(None, {"observation": rows})[0])
    assert np.array_equal(*scores)
    assert np.ptp(scores[0]) > 0


def test_a_case_that_never_compiles_does_not_end_the_training(tmp_path: Path) -> None:
    train(tmp_path / "run", "ppo", "iterations=1", options=("--option", "failing=project 0/0"))
    assert len(iterations(tmp_path / "run")) == 2


def test_the_model_gives_the_scores_of_the_weights_that_the_feature_chooses() -> None:
    chance = np.random.default_rng(1)
    layers = [
        Layer(chance.normal(size=(3, 2, 4)).astype(np.float32), chance.normal(size=(3, 1, 4)).astype(np.float32)),
        Layer(chance.normal(size=(3, 4, 1)).astype(np.float32), chance.normal(size=(3, 1, 1)).astype(np.float32)),
    ]
    rows = np.array([[15_000, 1], [-7, 0], [0, 1]], np.float32)
    scaling = Scaling(np.array([1, 0.5], np.float32), np.array([2, 0.5], np.float32))
    network = Network(["bonus", "own"], "own", 2.0, scaling, layers, "caller")
    chosen = np.array([[-1], [2**62], [5]], np.int64)
    (scores,) = ort.InferenceSession(network.to_onnx()).run(None, {"observation": rows, "caller": chosen})
    wanted = []
    for row, inputs, place in zip(rows, scaling(rows), chosen[:, 0].tolist(), strict=True):
        first, last = ((layer.weights[place % 3], layer.bias[place % 3]) for layer in layers)
        score = np.tanh(inputs @ first[0] + first[1]) @ last[0] + last[1]
        wanted.append([0, score.item() + 2 * (2 * row[1] - 1)])
    assert scores == pytest.approx(np.array(wanted), abs=1e-4)


def trajectory(calls: list[tuple[int, int, int]], costs: dict[int, float]) -> Trajectory:
    """Give a compilation of these calls: caller, callee, whether it was inlined."""
    seen = np.array([(caller, callee) for caller, callee, _ in calls], [("caller", np.int64), ("callee", np.int64)])
    units = [f"{caller:016x}" for caller, _, _ in calls]
    advice = np.array([inlined for *_, inlined in calls])
    ran = CompileResult({f"{unit:016x}": cost for unit, cost in costs.items()}, ["s"])
    return Trajectory(Case("c", "p"), ran, None, seen, advice, np.zeros(len(calls)), units)


def test_a_decision_is_credited_with_its_function_and_with_a_callee_that_is_no_longer_emitted() -> None:
    # 1 calls 2 and 2 calls 3; 2 is inlined into 1 and is no longer emitted, and 4 has nothing to do with them.
    made = trajectory([(2, 3, 1), (1, 2, 1), (4, 5, 0)], {1: 150, 3: 30, 4: 8})
    default = {f"{unit:016x}": cost for unit, cost in {1: 100.0, 2: 70.0, 3: 30.0, 4: 10.0}.items()}
    assert extra_costs(made, default, "function").tolist() == [0, -20, -2]
    assert extra_costs(made, default, "module").tolist() == [-22, -22, -22]


def test_what_a_function_that_was_inlined_has_become_counts_wherever_it_is() -> None:
    # 7 is emitted, and it was inlined into 6, whose other code is larger by decisions of its own.
    made = trajectory([(7, 8, 1), (6, 7, 1)], {6: 500, 7: 45})
    default = {f"{unit:016x}": cost for unit, cost in {6: 100.0, 7: 40.0}.items()}
    assert extra_costs(made, default, "function").tolist() == [10, 400]


def test_the_best_of_a_function_comes_from_where_it_is_smallest() -> None:
    default = {f"{unit:016x}": 100.0 for unit in range(1, 4)}
    small_first = trajectory([(1, 9, 0), (2, 9, 1)], {1: 80, 2: 130, 9: 0})
    small_second = trajectory([(1, 9, 1), (2, 9, 0)], {1: 100, 2: 90, 9: 0})
    by_function = best([small_first, small_second], default, "function")
    assert [each.tolist() for each in by_function] == [[True, False], [False, True]]
    by_module = best([small_first, small_second], default, "module")
    assert [each.tolist() for each in by_module] == [[False, False], [True, True]]
