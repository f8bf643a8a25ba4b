"""Whether a version is confirmed to be faster."""

from collections.abc import Callable

import pytest

from policybridge_client.cli import main
from policybridge_core.errors import PreconditionError
from policybridge_train.speed.confirming import compare, interval

_NOISE = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03, 0.97)


def _times(seconds: float) -> tuple[Callable[[int], float], list[float]]:
    took: list[float] = []

    def run(_: int) -> float:
        took.append(seconds * _NOISE[len(took) % len(_NOISE)])
        return took[-1]

    return run, took


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.9, "confirmed faster"), (1.0, "no difference shown"), (1.1, "confirmed slower")]
)
def test_a_verdict_needs_a_difference_beyond_the_noise(factor: float, verdict: str) -> None:
    times = interval([(each, factor * other) for each, other in zip(_NOISE, reversed(_NOISE), strict=True)])
    assert times.verdict == verdict
    assert times.low < times.factor < times.high


def test_five_pairs_have_the_interval_of_student() -> None:
    # By a table: 2.776 for four degrees of freedom; the logarithms' deviation is 0.1.
    logs = (0.1, -0.1, 0.1, -0.1, 0.0)
    times = interval([(1.0, 2.718281828459045**each) for each in logs])
    assert times.high == pytest.approx(2.718281828459045 ** (2.776 * 0.1 / 5**0.5), rel=0.002)


def test_a_short_run_is_repeated_more_often_within_a_sample_than_a_long_one() -> None:
    (short, shorts), (long, longs) = _times(0.01), _times(1.0)
    assert compare(short, short, 5).seconds == pytest.approx(0.01, rel=0.1)
    assert compare(long, long, 5).pairs == 5
    assert len(shorts) > len(longs) == 3 + 2 * 5 * 3


def test_a_run_without_measurable_time_is_refused_with_the_cure() -> None:
    with pytest.raises(PreconditionError, match="works longer"):
        compare(lambda _: 0.0, lambda _: 0.0, 5)


def test_fewer_pairs_than_five_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["autotune", "--objective", "cycles", "--run", "./bench", "--pairs", "4", "--", "make"])
    assert "give 5 to" in capsys.readouterr().err
