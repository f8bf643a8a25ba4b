"""The task of docs/training.md, trained as the contract of tasks allows: explore, read the ledger, fit, publish."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from policybridge_client.policies import RepositoryClient
from policybridge_serdes import Exploration, Values
from policybridge_train.corpus.parts import Part
from policybridge_train.learning.training import cases_of
from policybridge_train.tasks.task import Asking, Case
from policybridge_train.trajectories.trajectory import Trajectory, read_back
from tests.conftest import RunningServer, running_server
from tests.docs.pages import ROOT
from tests.repositories import write_python

EXAMPLE = ROOT / "examples" / "tasks" / "tiles.py"
_CONFIG = """
advice = {name = "scores", type = "float", shape = [5]}

[head]
advice = "tile"
"""
_POLICY = """
import numpy as np

WEIGHTS = np.array({weights}, np.float32)


class Policy:
    def evaluate(self, observation, session):
        shape = np.log([float(observation[name].item()) for name in ("rows", "columns", "depth")])
        return -np.array([*shape, *shape**2, 1], np.float32) @ WEIGHTS
"""


def policy(weights: np.ndarray) -> str:
    return _POLICY.format(weights=weights.tolist())


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiles", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def task(module: ModuleType) -> Any:
    return module.Tiles()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[RunningServer, Path]]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_python(folder / "policies", "tiles", policy(np.zeros((7, 5))), _CONFIG)
        ledger = folder / "ledger.db"
        with running_server(folder / "policies", folder, "--ledger", ledger, "--allow-publish") as server:
            yield server, ledger


def collected(task: Any, case: Case, served: tuple[RunningServer, Path], version: int, seed: int | None) -> Trajectory:
    exploration = None if seed is None else Exploration(seed, epsilon=1.0)
    ran = task.run(case, Asking(served[0].grpc, f"tiles@{version}", exploration))
    assert ran.ok, ran.failure
    return read_back(task, case, ran, served[1])


def test_a_policy_that_is_fitted_to_what_exploring_cost_misses_less_on_shapes_it_never_saw(
    module: ModuleType, task: Any, served: tuple[RunningServer, Path], tmp_path: Path
) -> None:
    cases = task.cases(None)
    training, held_out = cases_of(cases, Part.TRAINING), cases_of(cases, Part.HELD_OUT)
    trajectories = [collected(task, case, served, 1, seed) for case in training for seed in range(3)]
    assert all(
        list(each.units) == ["a", "b", "c", "d"] and each.result.costs.keys() == {*"abcd"} for each in trajectories
    )
    assert len({tuple(each.advice.tolist()) for each in trajectories}) > len(training)
    (tmp_path / "policy.py").write_text(policy(fitted(trajectories)))
    with RepositoryClient(served[0].grpc.removeprefix("grpc:")) as client:
        version = client.publish("tiles", tmp_path).version
    found = [collected(task, case, served, version, None) for case in held_out]
    usual = sum(usual_cost(module, each.observations) for each in found)
    assert sum(sum(each.result.costs.values()) for each in found) < 0.8 * usual


def fitted(trajectories: list[Trajectory]) -> np.ndarray:
    """Fit the logarithm of the misses of each choice, by the shape's logarithms and their squares."""
    shapes = np.log(np.concatenate([each.columns(["rows", "columns", "depth"]) for each in trajectories]))
    rows = np.column_stack([shapes, shapes**2, np.ones(len(shapes))])
    costs = np.log([each.result.costs[unit] for each in trajectories for unit in each.units])
    chosen = np.concatenate([each.advice for each in trajectories])
    fits = [np.linalg.lstsq(rows[chosen == tile], costs[chosen == tile], rcond=None)[0] for tile in range(5)]
    return np.stack(fits, axis=1)


def usual_cost(module: ModuleType, shapes: Values) -> float:
    """Give what the compiler's own choices cost."""
    known = [{name: int(shape[name].item()) for name in ("rows", "columns", "depth")} for shape in shapes]
    return float(sum(module.misses(**shape, tile=module.SIZES[2]) for shape in known))


def test_without_a_server_a_case_fails_and_says_why(task: Any, tmp_path: Path) -> None:
    case = task.cases(None)[0]
    ran = task.run(case, Asking(f"socket:{tmp_path / 'away'}", "tiles"))
    assert "away" in ran.failure
    assert not ran.costs


def test_the_example_has_at_most_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
