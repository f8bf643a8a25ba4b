"""Changes and their intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policybridge_train.scoring.statistics import Estimate, change

_SIZES = st.lists(
    st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.sampled_from("abc")), min_size=1, max_size=40
)


@given(_SIZES)
def test_the_values_are_those_of_numpy(rows: list[tuple[int, int, str]]) -> None:
    before, after, projects = zip(*rows, strict=True)
    found = change(before, after, projects, samples=20)
    ratios = np.array(after) / np.array(before) - 1
    assert found.total
    assert found.mean
    assert found.median
    assert found.total.value == pytest.approx(sum(after) / sum(before) - 1)
    assert found.mean.value == pytest.approx(ratios.mean())
    assert found.median.value == pytest.approx(np.median(ratios))
    assert (found.wins, found.losses, found.same) == (sum(ratios < 0), sum(ratios > 0), sum(ratios == 0))


def test_what_did_not_change_has_a_change_of_exactly_zero() -> None:
    found = change([3, 7, 1_000_003] * 20, [3, 7, 1_000_003] * 20, ["a", "b", "c"] * 20)
    assert found.total == found.mean == found.median == Estimate(0.0, 0.0, 0.0)
    assert (found.wins, found.losses, found.same) == (0, 0, 60)


def test_the_same_values_have_the_same_intervals() -> None:
    rows = ([100, 200, 300, 50], [90, 210, 250, 50], ["a", "a", "b", "c"])
    assert change(*rows) == change(*rows)


def test_a_total_of_modules_that_differ_has_a_wider_interval_than_of_modules_that_do_not() -> None:
    alike = change([100] * 50, [95] * 50, ["a"] * 50).mean
    mixed = change([100] * 50, [90, 100] * 25, ["a"] * 50).mean
    assert alike
    assert mixed
    assert alike.value == pytest.approx(mixed.value) == pytest.approx(-0.05)
    assert alike.high - alike.low == pytest.approx(0)
    assert mixed.low < -0.06
    assert mixed.high > -0.04


def test_projects_that_differ_make_an_interval_wide_even_where_each_has_many_modules() -> None:
    found = change([100] * 400, [90] * 200 + [100] * 200, ["a"] * 200 + ["b"] * 200).total
    assert found
    assert found.low == pytest.approx(-0.1)
    assert found.high == pytest.approx(0)


def test_a_true_change_lies_in_nineteen_of_twenty_intervals() -> None:
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        after = 100 + generator.normal(-5, 10, 60)
        mean = change([100] * 60, list(after), ["a"] * 60, samples=400).mean
        assert mean
        hits += mean.low <= -0.05 <= mean.high
    assert hits >= 86


def test_modules_with_nothing_before_count_in_the_total_alone() -> None:
    found = change([0, 0, 100], [50, 0, 100], ["a", "a", "a"])
    assert found.total
    assert found.mean
    assert found.total.value == pytest.approx(0.5)
    assert found.mean.value == 0
    assert (found.losses, found.same) == (1, 2)


def test_where_nothing_was_there_is_no_change_to_tell() -> None:
    found = change([0, 0], [0, 3], ["a", "b"])
    assert (found.total, found.mean, found.median) == (None, None, None)
    assert found.losses == 1
