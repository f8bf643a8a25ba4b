"""How outcomes of two versions are compared, and which conditions there are."""

import numpy as np
import pytest

from policybridge_core.errors import InvalidError
from policybridge_server.repository.conditions import FAILED, parse_condition
from policybridge_server.rollouts.comparison import compare


def test_the_interval_holds_the_true_change_about_as_often_as_it_says() -> None:
    generator, held = np.random.default_rng(1), 0
    for _ in range(100):
        base = generator.gamma(2, 1000, 40) + 100
        change = compare("text", np.stack([base, base * generator.normal(0.99, 0.02, 40)], axis=1), 0.9, 400)
        assert change is not None
        held += change.low <= -0.01 <= change.high
    assert 78 <= held <= 98


def test_the_same_outcomes_give_the_same_interval_and_more_confidence_a_wider_one() -> None:
    pairs = np.stack([np.arange(1.0, 51), np.arange(1.0, 51) * 0.99], axis=1)
    pairs[::2, 1] += 0.3
    once, again, surer = compare("text", pairs), compare("text", pairs), compare("text", pairs, 0.999)
    assert once == again
    assert once is not None
    assert surer is not None
    assert surer.low < once.low < once.change < once.high < surer.high


def test_failures_are_compared_as_parts_of_the_files() -> None:
    pairs = np.zeros((50, 2))
    pairs[:10, 1] = 1
    change = compare(FAILED, pairs)
    assert change is not None
    assert (change.base, change.version, change.change) == (0.0, 0.2, 0.2)
    assert 0.05 < change.low < 0.2 < change.high < 0.4
    pairs[10:15] = 1
    change = compare(FAILED, pairs)
    assert change is not None
    assert [change.base, change.version, change.change] == pytest.approx([0.1, 0.3, 0.2])


@pytest.mark.parametrize(("confidence", "deviations"), [(0.8, 1.2816), (0.95, 1.96), (0.99, 2.5758)])
def test_an_interval_is_as_wide_as_the_normal_distribution_of_a_mean_makes_it(
    confidence: float, deviations: float
) -> None:
    versions = np.random.default_rng(1).normal(99, 5, 400)
    change = compare("text", np.stack([np.full(400, 100.0), versions], axis=1), confidence)
    assert change is not None
    error = versions.std() / 100 / np.sqrt(400)
    assert change.high - change.change == pytest.approx(deviations * error, rel=0.12)
    assert change.change - change.low == pytest.approx(deviations * error, rel=0.12)
    assert [change.base, change.version] == pytest.approx([40_000.0, versions.sum()])


@pytest.mark.parametrize("pairs", [np.zeros((0, 2)), np.ones((1, 2)), np.zeros((9, 2)), -np.ones((9, 2))])
def test_what_cannot_be_compared_is_not(pairs: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> None:
    assert compare("text", pairs) is None


def test_a_condition_holds_or_is_refuted_by_a_whole_interval() -> None:
    smaller, larger = parse_condition("text < -0.1%"), parse_condition(" wall clock  >2e-1 % ")
    assert (larger.name, larger.below, larger.limit) == ("wall clock", False, 0.2 / 100)
    assert [smaller.holds(-0.01, high) for high in (-0.002, -0.001, 0.1)] == [True, False, False]
    assert [smaller.refuted(low, 0.1) for low in (-0.002, -0.001, 0.0)] == [False, True, True]
    assert parse_condition("failed > 0.5%").holds(0.006, 0.1)


@pytest.mark.parametrize(
    "text", ["", "text", "text < 1", "text <= 1%", "< 1%", "text < -%", "text < 1% and more", "a<b%"]
)
def test_what_is_no_condition_is_told_how_one_looks(text: str) -> None:
    with pytest.raises(InvalidError, match=r"such as text < -0\.1%"):
        parse_condition(text)
