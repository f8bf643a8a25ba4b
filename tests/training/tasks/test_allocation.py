"""Eviction and priority as tasks of training: a real compiler asks a real server, and the ledger has what it asked."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_serdes import Layout
from policybridge_train.tasks.allocation import Eviction, Priority, RegisterAllocation
from policybridge_train.tasks.task import Asking, Case
from policybridge_train.trajectories.trajectory import Trajectory, read_back
from tests.client.compilers import installed, parameters, write_pressure
from tests.conftest import running_server
from tests.training.corpora import write_corpus

_POLICIES = {Eviction: "evict-first-legal", Priority: "priority-by-size"}
_TASKS = list(_POLICIES)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a corpus")
    source = write_pressure(folder).read_text()
    # The oldest LLVM here makes what all can read.
    compiler = next(iter(installed("clang-19")), "zig")
    write_corpus(folder, {"p/pressure.c": source + "int calm(int x) { return 3 * x; }\n"}, compiler=compiler)
    return folder


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Path]]:
    with TemporaryDirectory(prefix="pb-") as name:
        ledger = Path(name, "ledger.db")
        with running_server(None, Path(name), "--ledger", ledger) as server:
            yield server.socket, ledger


def collected(task: RegisterAllocation, case: Case, served: tuple[str, Path], policy: str) -> Trajectory:
    ran = task.run(case, Asking(served[0], policy, labels={"round": "1"}))
    assert ran.ok, ran.failure
    return read_back(task, case, ran, served[1])


@pytest.mark.parametrize("compiler", ["zig", *parameters("clang-19", "clang-22")])
@pytest.mark.parametrize("kind", _TASKS)
def test_each_decision_belongs_to_the_function_whose_spills_it_costs(
    kind: type[RegisterAllocation], compiler: str, corpus: Path, served: tuple[str, Path]
) -> None:
    task = kind(compiler)
    (case,) = task.cases(corpus)
    trajectory = collected(task, case, served, _POLICIES[kind])
    assert case == Case("p/pressure.c", "p", "c")
    assert "f" in trajectory.units
    assert set(trajectory.units) <= trajectory.result.costs.keys() == {"f", "calm"}
    assert trajectory.result.costs["f"] > 4 > trajectory.result.costs["calm"] >= 0
    assert trajectory.result.totals["spills_log2"] == pytest.approx(sum(trajectory.result.costs.values()))
    assert trajectory.result.totals["spills"] == pytest.approx(
        sum(2**cost - 1 for cost in trajectory.result.costs.values())
    )
    sent, known = trajectory.observations.dtype, Layout.of(task.features).dtype
    assert {name: sent[name] for name in sent.names or ()} == {name: known[name] for name in known.names or ()}


@pytest.mark.parametrize("kind", _TASKS)
def test_without_a_policy_llvm_decides_and_the_costs_are_those_to_compare_with(
    kind: type[RegisterAllocation], corpus: Path
) -> None:
    task = kind()
    (case,) = task.cases(corpus)
    ran = task.run(case, None)
    assert ran.ok
    assert ran.costs["f"] > 4
    assert not ran.sessions


def test_without_a_server_or_with_a_policy_that_is_not_there_the_compilation_fails_and_says_why(
    corpus: Path, served: tuple[str, Path], tmp_path: Path
) -> None:
    task = Eviction()
    (case,) = task.cases(corpus)
    assert "missing" in task.run(case, Asking(served[0], "missing")).failure
    assert "away" in task.run(case, Asking(f"socket:{tmp_path / 'away'}", "evict-first-legal")).failure
    assert task.run(case, Asking("nonsense:x", "evict-first-legal")).failure


def test_a_task_without_its_corpus_or_with_a_limit_that_is_no_number_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="--corpus"):
        Priority().cases(None)
    with pytest.raises(NotFoundError, match="holds no corpus"):
        Priority().cases(tmp_path)
    with pytest.raises(InvalidError, match="seconds=soon"):
        Priority(seconds="soon")
    with pytest.raises(NotFoundError, match="no module"):
        Priority().run(Case("away", "p"), None)


def test_compilers_that_are_ended_fail_and_none_starts_later(corpus: Path) -> None:
    task = Eviction()
    (case,) = task.cases(corpus)
    task.end()
    assert "stopped" in task.run(case, None).failure
