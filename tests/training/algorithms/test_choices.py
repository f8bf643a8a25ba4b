"""The algorithm that learns choices, on a task that is quick to compile, with a real server and ledger."""

import os
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from policybridge_client.cli import main
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.parts import Part
from policybridge_train.learning.choosing import Decisions
from policybridge_train.learning.record import Record
from policybridge_train.learning.training import cases_of
from policybridge_train.tasks.task import Asking, Case
from tests.conftest import command
from tests.server.publishing.policies import wait_for
from tests.training.algorithms import runs
from tests.training.algorithms.runs import iterations
from tests.training.algorithms.sums import Sums

SUMS = "tests.training.algorithms.sums:Sums"


train = partial(runs.train, "choices")


def test_choices_that_only_pay_together_are_learnt_and_a_run_that_was_ended_comes_to_the_same(tmp_path: Path) -> None:
    settings = [word for one in ("iterations=1", "draws=5", "trees=40") for word in ("--set", one)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(SUMS, whole, *settings)[0] == 0
    # No iteration begins after this time but the first.
    assert train(SUMS, parts, *settings, "--minutes", "0")[0] == 0
    assert len(iterations(parts)) == 1
    assert train(SUMS, parts, *settings)[0] == 0
    found = iterations(whole)
    assert [each.digest for each in iterations(parts)] == [each.digest for each in found]
    distances = [max(costs["distance"] for costs in each.costs.values()) for each in found]
    # By default the sums are 0 + 1 + … + 8 away.
    assert distances[0] == 36
    assert distances[-1] <= 9


def test_a_run_whose_task_tells_other_features_now_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("--set", "iterations=1", "--minutes", "0")
    assert train(SUMS, tmp_path, *settings)[0] == 0
    monkeypatch.setattr(Sums, "features", (*Sums.features, TensorSpec("more", ElementType.INT64)))
    status, said = train(SUMS, tmp_path, *settings)
    assert status == 2
    assert "is a run with features = wanted: int64_t" in said
    assert "more: int64_t" in said


def test_a_run_is_not_continued_with_other_options_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "__init__", lambda _, **options: options.clear())
    assert train(SUMS, tmp_path, "--minutes", "0", "--compiler", "one", "--option", "a=b")[0] == 0
    status, said = train(SUMS, tmp_path, "--minutes", "0", "--compiler", "two")
    assert status == 2
    assert "is a run with options = a=b compiler=one, and not compiler=two" in said
    # Their order means nothing.
    assert train(SUMS, tmp_path, "--minutes", "0", "--option", "a=b", "--compiler", "one")[0] == 0


def test_a_run_is_not_continued_with_other_cases(tmp_path: Path) -> None:
    assert train(SUMS, tmp_path, "--minutes", "0")[0] == 0
    status, said = train(SUMS, tmp_path, "--minutes", "0", "--module", "*1*")
    assert status == 2
    assert "is a run with cases = " in said
    assert " for validation" in said


def test_a_task_that_does_not_say_its_choices_is_an_error(tmp_path: Path) -> None:
    status, said = train("tests.training.algorithms.toy:Toy", tmp_path / "run")
    assert status == 2
    assert "an attribute `choices` says of how many; toy is none" in said


def test_a_task_that_reports_no_outcome_is_trained_by_all_its_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sums, "reports", False)
    status, said = train(SUMS, tmp_path, "--set", "iterations=1", "--set", "draws=1", "--set", "trees=5")
    assert status == 0, said
    with Record(tmp_path / "run.db", {}) as record:
        pieces = [Decisions.unpacked(data, 4) for _, _, data in record.pieces(1)]
    # By default, and once drawn: two decisions of each of nine sums.
    assert pieces
    assert {len(piece.rows) for piece in pieces} == {2 * 18}


class Removing(Sums):
    """Sums of which one has no cost."""

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Run; see `Task`."""
        ran = super().run(case, asking)
        return replace(ran, costs={unit: cost for unit, cost in ran.costs.items() if unit != "sum 8"})


def test_decisions_of_a_unit_without_a_cost_are_not_learnt_from(tmp_path: Path) -> None:
    settings = [word for one in ("iterations=1", "draws=1", "trees=5") for word in ("--set", one)]
    assert train(f"{__name__}:Removing", tmp_path, *settings)[0] == 0
    with Record(tmp_path / "run.db", {}) as record:
        pieces = [Decisions.unpacked(data, 4) for _, _, data in record.pieces(1)]
    assert pieces
    for piece in pieces:
        # The first feature is the wanted sum; each is decided about twice, by default and once drawn.
        assert np.bincount(piece.rows[:, 0].astype(int)).tolist() == [4] * 8


class Logged(Sums):
    """Sums that log each case they compile, and hang in one of them while a FIFO is there.

    Args:
        folder: of the log, and of the FIFO ``hold``.

    """

    held = "20"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Run; see `Task`."""
        with (self._folder / "log").open("a") as log:
            log.write(f"{case.name}\n")
        if case.name == self.held and (self._folder / "hold").exists():
            (self._folder / "hold").read_text()
        return super().run(case, asking)


def test_a_killed_run_compiles_no_case_again_whose_results_it_has_kept(tmp_path: Path) -> None:
    cases = [case.name for case in cases_of(Sums().cases(None), Part.TRAINING)]
    assert cases.index(Logged.held) > 5
    run, log, hold = tmp_path / "run", tmp_path / "log", tmp_path / "hold"
    os.mkfifo(hold)
    task = f"{__name__}:Logged"
    settings = [word for one in ("iterations=1", "draws=1", "trees=5") for word in ("--set", one)]
    words = [*settings, "--option", f"folder={tmp_path}"]
    trainer = subprocess.Popen(command("train", task, "--algo", "choices", "--output", run, "--jobs", 2, *words))
    try:
        wait_for(lambda: log.exists() and Logged.held in log.read_text().split())
        wait_for(lambda: len(kept(run)) == cases.index(Logged.held))
    finally:
        trainer.kill()
        trainer.wait()
    hold.unlink()
    log.unlink()
    assert train(task, run, *words)[0] == 0
    compiled = set(log.read_text().split())
    assert compiled.isdisjoint(cases[: cases.index(Logged.held)])
    assert compiled > set(cases[cases.index(Logged.held) :])


def kept(run: Path) -> list[str]:
    """Give the cases whose results a run has kept; it may still go on."""
    with closing(sqlite3.connect(run / "run.db")) as database:
        return [name for (name,) in database.execute("SELECT name FROM pieces")]


class Odd(Sums):
    """Sums of which some costs and totals are what ``number`` says."""

    number: object = 0.0
    cases_of_it = ("",)

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Run; see `Task`."""
        ran = super().run(case, asking)
        odd: Any = self.number
        return replace(ran, totals={"distance": odd}) if case.name.endswith(self.cases_of_it) else ran


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), "3", None])
def test_a_cost_that_is_no_finite_number_is_a_failure_of_its_case_that_names_it(
    number: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "number", number)
    status, said = train(f"{__name__}:Odd", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 2
    assert f"the task says that the total 'distance' is {number!r}, which is no finite number" in said


def test_cases_whose_costs_are_no_numbers_are_left_out_of_the_others_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "number", float("nan"))
    monkeypatch.setattr(Odd, "cases_of_it", ("5",))
    status, said = train(f"{__name__}:Odd", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 0, said
    assert "which is no finite number" in said
    assert "distance +0.00 %" in said


def test_costs_may_be_numbers_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "number", np.int64(36))
    status, said = train(f"{__name__}:Odd", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 0, said
    assert iterations(tmp_path)[0].costs["9"] == {"distance": 36.0}


class Uneven(Sums):
    """Sums that forget the units of all decisions but the first."""

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the unit of one decision."""
        return super().units(observations, contexts)[:1]


def test_a_task_that_gives_no_unit_for_some_decisions_is_an_error_that_counts_them(tmp_path: Path) -> None:
    status, said = train(f"{__name__}:Uneven", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 2
    assert "the task sums gives 1 units for the 18 decisions of " in said


class Forgetful(Sums):
    """Sums whose run forgets to return its result."""

    def run(self, case: Case, asking: Asking | None) -> Any:
        """Return nothing."""
        super().run(case, asking)


class Misnamed(Sums):
    """Sums whose default is no feature."""

    default = "usual"


class Bare:
    """A class that is hardly a task."""

    name = "bare"
    features = ()
    advice = None


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("Forgetful", "of the task sums returned NoneType and no CompileResult"),
        ("Misnamed", "Misnamed, 'usual', is none of its features, ['wanted'"),
        ("Bare", "Bare is no task: it lacks default, cases, run, end, units"),
    ],
)
def test_what_a_class_lacks_to_be_a_task_is_named(task: str, message: str, tmp_path: Path) -> None:
    status, said = train(f"{__name__}:{task}", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert (status, message in said, "Traceback" in said) == (2, True, False), said


class Raising(Sums):
    """Sums of which some methods raise an exception."""

    raising: tuple[str, ...] = ()
    error: BaseException = ZeroDivisionError("a mistake of mine")
    cases_of_it = ("",)

    def __init__(self) -> None:
        self._raise("its constructor")

    def _raise(self, method: str) -> None:
        if method in self.raising:
            raise self.error

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the cases; see `Task`."""
        self._raise("cases")
        return super().cases(corpus)

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Run; see `Task`."""
        if case.name.endswith(self.cases_of_it):
            self._raise("run")
        return super().run(case, asking)

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:
        """Give the units; see `Task`."""
        self._raise("units")
        return super().units(observations, contexts)


@pytest.mark.parametrize("method", ["its constructor", "cases", "run", "units"])
def test_what_a_task_raises_is_told_with_the_method_and_the_place(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "raising", (method,))
    status, said = train(f"{__name__}:Raising", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 2
    assert f" raised ZeroDivisionError in {method}" in said
    assert f": a mistake of mine ({__file__}, line " in said
    assert "Traceback" not in said


class UntellableError(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        """Raise, as careless code does."""
        raise ValueError


@pytest.mark.parametrize("error", [SystemExit(0), UntellableError()])
@pytest.mark.parametrize("method", ["cases", "run"])
def test_a_task_that_exits_or_raises_what_cannot_be_told_is_told_with_the_place(
    method: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "raising", (method,))
    monkeypatch.setattr(Raising, "error", error)
    status, said = train(f"{__name__}:Raising", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 2
    assert f" raised {type(error).__name__} in {method}" in said
    assert f"({__file__}, line " in said


def test_a_task_that_raises_in_some_cases_is_trained_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "raising", ("run",))
    monkeypatch.setattr(Raising, "cases_of_it", ("5",))
    status, said = train(f"{__name__}:Raising", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 0, said
    assert "35: the task sums raised ZeroDivisionError in run of 35: a mistake of mine (" in said
    assert "distance +0.00 %" in said


class Twins(Sums):
    """Sums of which two have one name."""

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give all cases, and one of them again."""
        return [*super().cases(corpus), Case("7", "7")]


def test_a_task_with_two_cases_of_one_name_is_an_error_that_names_them(tmp_path: Path) -> None:
    status, said = train(f"{__name__}:Twins", tmp_path, "--set", "iterations=1", "--minutes", "0")
    assert status == 2
    assert "the task sums gives 2 cases the name '7'; each must have one of its own" in said


@pytest.mark.parametrize("minutes", ["nan", "-1"])
def test_minutes_that_are_no_time_are_refused(minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", SUMS, "--algo", "choices", "--output", str(tmp_path / "run"), f"--minutes={minutes}"])
    assert f"{minutes} is no time: give minutes, 0 or more" in capsys.readouterr().err
