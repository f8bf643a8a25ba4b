"""A version is probed in a process that is ended, before the server itself loads it."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import PreconditionError, UnavailableError
from policybridge_serdes import PolicyVersion
from policybridge_server.engine.rehearsal import Rehearsal
from policybridge_server.repository import PolicyConfig, StoredVersion
from tests.conftest import RunningServer, ServerFactory
from tests.onnx_models import make_model
from tests.server.publishing.policies import Client, client, wait_for, write_adder, write_policy

INT = TensorProto.INT64
LOAD = 15.0
"""Seconds for loading a version: enough for a good one on a busy machine."""


def write(folder: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> Path:
    """Write a model of ``x``, which adds ``own`` to what the nodes make."""
    folder.mkdir(parents=True, exist_ok=True)
    add = helper.make_node("Add", ["made", "x"], ["advice"])
    model = make_model([*nodes, add], {"x": (INT, ["batch", 1])}, {"advice": (INT, ["batch", 1])}, weights)
    onnx.save(model, folder / "model.onnx")
    return folder


def constant(folder: Path, elements: int) -> Path:
    """Write a model that sums a constant of so many elements."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("Cast", ["large"], ["whole"], to=INT),
        helper.make_node("ReduceSum", ["whole"], ["made"], keepdims=0),
    ]
    return write(folder, nodes, {"shape": np.array([elements], np.int64)})


def large_and_broken(folder: Path, elements: int) -> Path:
    """Write a model that holds a constant, and asks for a row that its table does not have."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("Cast", ["large"], ["whole"], to=INT),
        helper.make_node("Mul", ["x", "zero"], ["nothing"]),
        helper.make_node("Add", ["whole", "nothing"], ["sums"]),
        helper.make_node("ReduceMax", ["sums"], ["most"], keepdims=0),
        helper.make_node("Add", ["most", "nine"], ["index"]),
        helper.make_node("Gather", ["rows", "index"], ["made"]),
    ]
    weights = {"shape": [elements], "zero": 0, "nine": 9, "rows": [5, 6]}
    return write(folder, nodes, {name: np.array(value, np.int64) for name, value in weights.items()})


def endless(folder: Path) -> Path:
    """Write a model that never returns."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["value", "value"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("index", INT, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", INT, ["batch", 1]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", INT, ["batch", 1]),
        ],
    )
    loop = helper.make_node("Loop", ["times", "true", "x"], ["made"], body=body)
    return write(folder, [loop], {"times": np.array(2**62, np.int64), "true": np.array(True)})


def table(folder: Path) -> Path:
    """Write a model that takes 100 and 101 alone."""
    nodes = [
        helper.make_node("Sub", ["x", "hundred"], ["index"]),
        helper.make_node("Gather", ["rows", "index"], ["made"]),
    ]
    return write(folder, nodes, {"hundred": np.array(100, np.int64), "rows": np.array([5, 6], np.int64)})


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    write_policy(tmp_path / "policies")
    return tmp_path / "policies"


@pytest.fixture
def served(server_factory: ServerFactory, policies: Path) -> Iterator[tuple[RunningServer, Client]]:
    server = server_factory(policies, "--allow-publish")
    with client(server) as made:
        yield server, made


def test_a_version_that_fails_at_every_observation_is_refused(
    served: tuple[RunningServer, Client], policies: Path, tmp_path: Path
) -> None:
    _, made = served
    with pytest.raises(PreconditionError, match="it fails at every observation of the probe"):
        made.repository.publish("adder", constant(tmp_path / "huge", 2**40))
    shutil.copytree(tmp_path / "huge", policies / "adder" / "7")
    wait_for(lambda: any(version.error for version in made.repository.show("adder").versions))
    assert made.ask()[0].version == 1


def test_a_version_that_fails_at_every_observation_is_refused_at_the_start_too(
    server_factory: ServerFactory, policies: Path
) -> None:
    constant(policies / "adder" / "2", 2**40)
    with client(server_factory(policies)) as made:
        assert made.ask()[0].version == 1


def test_a_version_that_lies_there_at_the_start_is_loaded_without_a_process_of_its_own(
    served: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    server, made = served
    assert made.ask()[1] == 100
    assert children(server.process.pid) == []
    made.repository.publish("adder", write_adder(tmp_path / "new", 200))
    assert len(children(server.process.pid)) == 1


def test_a_version_that_never_returns_is_refused_and_leaves_no_process(
    server_factory: ServerFactory, policies: Path, tmp_path: Path
) -> None:
    server = server_factory(policies, "--allow-publish", "--load-timeout", str(LOAD))
    with client(server) as made:
        with pytest.raises(PreconditionError, match=f"was not loaded within {LOAD:g} s"):
            made.repository.publish("adder", endless(tmp_path / "endless"))
        wait_for(lambda: not children(server.process.pid))
        assert not any(thread.startswith("adder@2") for thread in threads(server.process.pid))
        # The next one has a process of its own.
        assert made.repository.publish("adder", write_adder(tmp_path / "good", 200)).version == 2
        assert made.ask()[1] == 200


def test_the_memory_of_a_version_that_is_refused_is_never_the_servers(
    served: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    server, made = served
    made.repository.publish("adder", write_adder(tmp_path / "good", 200))
    before = peak(server.process.pid)
    with pytest.raises(PreconditionError, match="it fails at every observation"):
        made.repository.publish("adder", large_and_broken(tmp_path / "large", 100 << 20))
    assert peak(server.process.pid) - before < 300 << 20


def test_a_model_that_refuses_random_observations_is_probed_with_the_one_that_policy_toml_names(
    served: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    _, made = served
    folder = table(tmp_path / "table")
    with pytest.raises(PreconditionError, match=r"say one under \[probe\] in policy.toml"):
        made.repository.publish("table", folder, config='backend = "onnx"\n')
    made.repository.publish("table", folder, config='backend = "onnx"\n[probe]\nx = 101\n')
    assert made.repository.show("table").summary.latest == 1


def children(pid: int) -> list[int]:
    """Give the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def threads(pid: int) -> list[str]:
    return [task.read_text().strip() for task in Path(f"/proc/{pid}/task").glob("*/comm")]


def peak(pid: int) -> int:
    """Give the most bytes of memory that a process has had."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def stored(folder: Path) -> StoredVersion:
    return StoredVersion(PolicyVersion("rehearsed", 1, "sha256:0"), folder, PolicyConfig(backend="onnx"))


def test_no_process_outlives_a_rehearsal_that_is_closed_while_it_probes_a_version(tmp_path: Path) -> None:
    rehearsal, own = Rehearsal(), psutil.Process()
    others = set(own.children())
    good, bad = stored(constant(tmp_path / "good", 3)), stored(endless(tmp_path / "bad"))
    rehearsal.probe(good, good.folder, None, 600.0)
    (child,) = set(own.children()) - others
    begun = child.cpu_times().user
    with ThreadPoolExecutor(1) as pool:
        probing = pool.submit(rehearsal.probe, bad, bad.folder, None, 600.0)
        wait_for(lambda: child.cpu_times().user > begun + 0.5)
        rehearsal.close()
        with pytest.raises(UnavailableError, match="the server ends"):
            probing.result(60)
    assert not set(own.children()) - others
    with pytest.raises(UnavailableError):
        rehearsal.probe(good, good.folder, None, 600.0)
    assert not set(own.children()) - others
