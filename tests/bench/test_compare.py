"""Whether a slower build is caught, and chance is not."""

from pathlib import Path

import pytest

from policybridge_bench.compare import compare
from policybridge_bench.results import Case, Measured, Round, Run, write_json
from tests.bench.running import bench, measured
from tests.repositories import answering, write_python

SLOW = """
import time

class Policy:
    def evaluate(self, observation, session):
        end = time.perf_counter() + 20e-3
        while time.perf_counter() < end:
            pass
        return 1
"""


def run_of(p50: list[float], throughput: list[float] | None = None, regime: str = "quiet", way: str = "socket") -> Run:
    rates = throughput or [1000.0] * len(p50)
    rounds = [
        Round(p50=p, p90=p, p99=p, p999=p, throughput=r, count=100, spectrum=[p], client_cpu=1.0)
        for p, r in zip(p50, rates, strict=True)
    ]
    case = Case(contender="policybridge", way=way, generator="python", clients=1)
    return Run(machine={}, regime=regime, seconds=1, cases=[Measured(case=case, rounds=rounds)])


def verdicts(before: Run, after: Run, limit: float = 1.1) -> list[str]:
    return [each.figure for each in compare(before, after) if each.is_worse(limit)]


def test_a_policy_that_burns_time_is_a_regression_and_the_same_one_is_none(tmp_path: Path) -> None:
    for name, source in (("fast", answering("1")), ("slow", SLOW)):
        write_python(tmp_path / name, "mine", source)
        asked = ["--repository", tmp_path / name, "--policy", "mine", "--ways", "socket", "--rounds", "3"]
        measured(tmp_path, *asked, name=name)
    slower = bench("--compare", tmp_path / "fast.json", tmp_path / "slow.json")
    assert slower.status == 1
    assert "regression: policybridge socket" in slower.output
    assert bench("--compare", tmp_path / "fast.json", tmp_path / "fast.json").status == 0
    assert bench("--compare", tmp_path / "slow.json", tmp_path / "fast.json").status == 0


def test_slower_in_every_round_is_worse() -> None:
    assert verdicts(run_of([100, 101, 99, 100, 102]), run_of([130, 131, 129, 130, 132])) == ["p50"]


def test_slower_by_less_than_the_limit_is_not_worse() -> None:
    assert verdicts(run_of([100, 101, 99, 100, 102]), run_of([105, 106, 104, 105, 107])) == []


def test_slower_in_some_rounds_alone_is_chance() -> None:
    assert verdicts(run_of([100, 300, 100, 300, 100]), run_of([100, 300, 300, 300, 100])) == []


def test_fewer_decisions_per_second_are_worse_and_more_are_not() -> None:
    few, many = run_of([100] * 5, [1000, 1010, 990, 1000, 1005]), run_of([100] * 5, [2000, 2020, 1990, 2000, 2005])
    assert verdicts(many, few) == ["throughput"]
    assert verdicts(few, many) == []


def test_the_interval_holds_the_ratio_of_the_medians() -> None:
    (p50, *_) = compare(run_of([90, 100, 110, 105, 95]), run_of([180, 200, 220, 210, 190]))
    assert p50.ratio == pytest.approx(2)
    assert 1.6 < p50.low < 2 < p50.high < 2.5


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (run_of([100], regime="busy"), "one run was quiet and the other busy"),
        (run_of([100], way="grpc"), "no case in common"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path, after: Run, message: str) -> None:
    write_json(run_of([100]), tmp_path / "a.json")
    write_json(after, tmp_path / "b.json")
    ended = bench("--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert ended.status == 2
    assert message in ended.errors
