"""Tiling as a task of training: the programs of all tiles compute the same, and cachegrind tells them apart."""

import inspect
import os
import subprocess
from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError
from policybridge_serdes import Exploration
from policybridge_train.tasks.nests import Nest, nests
from policybridge_train.tasks.task import Asking
from policybridge_train.tasks.tiling import Tiling
from policybridge_train.trajectories.trajectory import read_back
from tests.native.llvm.plugins import need
from tests.native.mlir.conftest import Plugin


@pytest.fixture
def task(plugin: Plugin) -> Tiling:
    for tool in ("valgrind", "clang-22", "mlir-translate-22"):
        need(tool)
    return Tiling("6", plugins=str(plugin.path.parent))


def test_a_program_computes_the_same_by_every_tile_and_its_misses_are_the_cost_of_its_operation(
    task: Tiling, plugin: Plugin, tmp_path: Path
) -> None:
    asking = Asking(plugin.server, "usual", labels={"purpose": "training"})
    for number, nest in enumerate((Nest("matmul", (37, 50, 61), "f64"), Nest("conv", (9, 12, 7, 33, 3, 3), "f32"))):
        printed = set()
        for seed in range(2):
            folder = tmp_path / f"{number} {seed}"
            folder.mkdir()
            exploration = Exploration(seed, epsilon=1.0) if seed else None
            task.lower(nest, folder, Asking(asking.server, asking.policy, exploration), nest.name)
            task.link(nest, folder)
            printed.add(subprocess.run([folder / "program"], capture_output=True, check=True).stdout)
        assert len(printed) == 1
    case = task.cases(None)[0]
    usual, echo = task.run(case, None), task.run(case, asking)
    drawn = task.run(case, Asking(asking.server, asking.policy, Exploration(1, epsilon=1.0)))
    assert [each.failure for each in (usual, echo, drawn)] == [""] * 3
    assert usual.totals == echo.totals != drawn.totals
    rollout = read_back(task, case, drawn, plugin.ledger)
    assert {*rollout.units} == {*drawn.costs} == {"nest/linalg.matmul/0"}
    assert drawn.totals["misses"] > 300


def test_the_shapes_are_the_same_each_time_and_no_two_are_alike() -> None:
    found = nests(60)
    assert found == nests(80)[:60]
    assert len({nest.name for nest in found}) == 60
    assert {nest.kind for nest in found} == {"matmul", "conv"}
    assert all(nest.bytes > 48 << 10 and nest.products <= 1 << 19 for nest in found)


def test_a_task_without_its_plugin_or_server_says_so(task: Tiling, tmp_path: Path) -> None:
    assert "POLICYBRIDGE_PLUGINS" not in os.environ
    with pytest.raises(NotFoundError, match=r"there is no policybridge-mlir-22\.so; give its folder by --plugins"):
        Tiling(plugins=str(tmp_path))
    ran = task.run(task.cases(None)[0], Asking(f"socket:{tmp_path / 'away'}", "usual"))
    assert "away" in ran.failure
    assert not ran.costs


def test_a_command_that_takes_longer_than_its_seconds_fails_its_case(
    task: Tiling, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "mlir-opt-22"
    hanging.write_text("#!/bin/sh\nexec sleep 3600\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    limited = Tiling("1", plugins=str(plugin.path.parent), seconds="0.5")
    ran = limited.run(limited.cases(None)[0], None)
    assert ran.failure == "mlir-opt-22: timeout: it was ended after 0.5 seconds"
    assert inspect.signature(type(task)).parameters["seconds"].default == "60"
