"""The failures of a version: the client's error, and few lines in the log."""

import logging

import pytest

from policybridge_core.errors import PolicyFailedError
from policybridge_server.engine.failures import Failures


def raised(line: int, cause: bool = False) -> BaseException:
    """Give an error that was raised in a line of a policy."""
    code = compile("\n" * (line - 1) + "raise ValueError('of no use')", "policy.py", "exec")
    try:
        exec(code)
    except ValueError as error:
        if not cause:
            return error
        try:
            raise PolicyFailedError("because of it") from error
        except PolicyFailedError as outer:
            return outer
    raise AssertionError


def test_each_place_is_logged_once_and_only_the_first_16_places_are(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures("p@1")
    for line in range(1, 21):
        for _ in range(2):
            told = failures.add(raised(line))
            assert "the policy failed: ValueError: of no use" in str(told)
    places = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(places) == 16
    assert all(f'policy.py", line {line}' in text for line, text in enumerate(places, 1))
    assert failures.count == 40


def test_further_failures_of_a_place_are_counted_in_the_log_at_10_100_and_1000(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = Failures("p@1")
    for _ in range(1200):
        failures.add(raised(1))
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [f"policy p@1 has failed {count} times" for count in (10, 100, 1000)]


def test_an_error_that_a_backend_raised_from_another_one_has_that_ones_place(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures("p@1")
    for line in (1, 2, 1):
        assert str(failures.add(raised(line, cause=True))) == "because of it"
    assert str(failures.add(PolicyFailedError(""))) == "the policy failed"
    assert len(caplog.records) == 3
