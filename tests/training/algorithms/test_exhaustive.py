"""The algorithm that compiles each case with each alternative, on a task without a compiler, with a real server."""

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from policybridge_train.compiling.result import CompileResult
from policybridge_train.learning.alternatives import Labels
from policybridge_train.learning.record import Iteration, Record
from policybridge_train.tasks.task import Asking, Case
from tests.training.algorithms import runs
from tests.training.algorithms.picks import COSTS, UNITS, Picks
from tests.training.algorithms.runs import iterations

PICKS = "tests.training.algorithms.picks:Picks"
SMALL = [
    word for one in ("trees=20", "leaves=3", "rate=0.3", "units=5", "fraction=1", "l2=1") for word in ("--set", one)
]


train = partial(runs.train, "exhaustive")


def pieces(folder: Path) -> dict[str, Labels]:
    with Record(folder / "run.db", {}) as record:
        return {name: Labels.unpacked(data, 2, 3) for _, name, data in record.pieces(1)}


def costs(iteration: Iteration) -> set[float]:
    return {totals["bytes"] for totals in iteration.costs.values()}


def test_the_versions_are_the_compilers_own_alternative_the_best_for_all_and_trees_that_deviate(tmp_path: Path) -> None:
    status, said = train(PICKS, tmp_path, *SMALL, "--promote", "best")
    assert status == 0, said
    own, constant, trees = iterations(tmp_path)
    share = UNITS / len(COSTS)
    assert costs(own) == {share * sum(kind[0] for kind in COSTS)}
    assert costs(constant) == {share * sum(kind[1] for kind in COSTS)}
    assert costs(trees) == {share * sum(min(kind) for kind in COSTS)}
    assert "it is the best so far, and now picks@best" in said


def test_only_training_cases_are_labelled_each_with_the_cost_of_each_alternative(tmp_path: Path) -> None:
    assert train(PICKS, tmp_path, *SMALL)[0] == 0
    found = pieces(tmp_path)
    # By the split's rule, project 7 is for validation, and 3, 4 and 5 are held out.
    assert {name.partition("/")[0] for name in found} == {f"project {number}" for number in (0, 1, 2, 6, 8, 9)}
    for labels in found.values():
        assert len(labels) == UNITS
        kinds = labels.rows[:, 0].astype(int).tolist()
        assert labels.costs.tolist() == [list(COSTS[kind]) for kind in kinds]


class Removing(Picks):
    """Units of which one is never emitted, as a function is that was inlined everywhere."""

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Ask about all units; see `Picks`."""
        return _removed(super().run(case, asking))

    def run_with(self, case: Case, choice: int) -> CompileResult:
        """Give the costs of one alternative; see `Picks`."""
        return _removed(super().run_with(case, choice))


def _removed(result: CompileResult) -> CompileResult:
    return replace(result, costs={unit: cost for unit, cost in result.costs.items() if unit != "unit 3"})


def test_decisions_of_a_unit_without_a_cost_are_not_learnt_from(tmp_path: Path) -> None:
    assert train(f"{__name__}:Removing", tmp_path, *SMALL)[0] == 0
    for labels in pieces(tmp_path).values():
        # The second feature numbers the units.
        assert labels.rows[:, 1].tolist() == [unit for unit in range(UNITS) if unit != 3]


def test_only_cases_and_projects_of_the_patterns_are_compiled(tmp_path: Path) -> None:
    projects, modules = tmp_path / "projects", tmp_path / "modules"
    assert train(PICKS, projects, *SMALL, "--project", "project 0", "--project", "*7")[0] == 0
    assert set(pieces(projects)) == {f"project 0/{number}" for number in (0, 10, 20, 30)}
    assert set(iterations(projects)[-1].costs) == {f"project 7/{number}" for number in (7, 17, 27, 37)}
    assert train(PICKS, modules, *SMALL, "--module", "*/[12]0", "--module", "project 7/17")[0] == 0
    assert set(pieces(modules)) == {"project 0/10", "project 0/20"}
    assert set(iterations(modules)[-1].costs) == {"project 7/17"}


def test_a_run_that_was_ended_comes_to_the_versions_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(PICKS, whole, *SMALL)[0] == 0
    assert train(PICKS, parts, *SMALL, "--compiles", "1")[0] == 0
    assert (len(iterations(parts)), pieces(parts)) == (1, {})
    assert train(PICKS, parts, *SMALL)[0] == 0
    assert [each.digest for each in iterations(parts)] == [each.digest for each in iterations(whole)]


def test_trees_that_do_not_save_in_projects_that_they_have_not_seen_are_left_out(tmp_path: Path) -> None:
    assert train(PICKS, tmp_path, *SMALL, "--option", "seen=no", "--set", "leaves=2")[0] == 0
    _, constant, trees = iterations(tmp_path)
    assert costs(trees) == costs(constant)


def test_a_case_that_fails_with_an_alternative_is_told_and_the_others_are_learnt_from(tmp_path: Path) -> None:
    status, said = train(PICKS, tmp_path, *SMALL, "--option", "failing=project 1/11")
    assert status == 0, said
    assert "project 1/11: it does not compile so" in said
    found = pieces(tmp_path)
    assert [name for name, labels in found.items() if not len(labels)] == ["project 1/11"]
    assert costs(iterations(tmp_path)[-1]) == {UNITS / len(COSTS) * sum(min(kind) for kind in COSTS)}


def test_cases_is_the_number_of_cases_that_are_labelled(tmp_path: Path) -> None:
    assert train(PICKS, tmp_path, *SMALL, "--set", "cases=5")[0] == 0
    assert len(pieces(tmp_path)) == 5


def test_alternatives_that_are_not_tried_are_not_compiled_with_and_never_chosen(tmp_path: Path) -> None:
    status, said = train(PICKS, tmp_path, *SMALL, "--set", "tried=2")
    assert status == 0, said
    for labels in pieces(tmp_path).values():
        kinds = labels.rows[:, 0].astype(int).tolist()
        assert labels.costs.tolist() == [[COSTS[kind][0], float("inf"), COSTS[kind][2]] for kind in kinds]
    share = UNITS / len(COSTS)
    _, constant, trees = iterations(tmp_path)
    assert costs(constant) == {share * min(sum(kind[0] for kind in COSTS), sum(kind[2] for kind in COSTS))}
    assert costs(trees) == {share * sum(min(kind[0], kind[2]) for kind in COSTS)}


def test_an_alternative_that_there_is_not_cannot_be_tried(tmp_path: Path) -> None:
    status, said = train(PICKS, tmp_path, *SMALL, "--set", "tried=1,3")
    assert status == 2
    assert "tried: the alternatives have the numbers 0 to 2, not 3" in said
    assert train(PICKS, tmp_path, *SMALL, "--set", "tried=1;2")[0] == 2


@pytest.mark.parametrize("task", ["sums:Sums", "toy:Toy"])
def test_a_task_that_cannot_take_one_alternative_for_all_units_is_refused(task: str, tmp_path: Path) -> None:
    status, said = train(f"tests.training.algorithms.{task}", tmp_path)
    assert status == 2
    assert "needs a task that compiles a case with one alternative for all units" in said
