"""How far a roll-out is, by the outcomes in a ledger: which files count, by whose word, and when the judge looks."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest

from policybridge_serdes import Outcome, PolicyVersion
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.records import Begun, Ended, Reported
from policybridge_server.ledger.sqlite import SqliteStore
from policybridge_server.ledger.summary import open_summary
from policybridge_server.repository.rollout import Rollout
from policybridge_server.rollouts.judge import Stand, stand_of

RUNNING = Rollout(version=2, base=1, alias="stable", share=1.0, promote_if=("text < -0.1%",), files=10)


class Outcomes:
    """A ledger that the tests fill with the sessions of a roll-out of the version 2 to ``stable``."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._store = SqliteStore(ledger, Bounds())
        self._numbers = count()

    def compile(self, files: Iterable[str], version: int, text: float, reporter: str = "", status: str = "ok") -> None:
        for file in files:
            name = f"s{next(self._numbers)}"
            view = SessionView(name, PolicyVersion("p", version, ""), file=file, alias="stable", reporter=reporter)
            outcome = Reported(name, Outcome({"text": text}, status), 2.0, reporter)
            self._store.write([Begun(view, 1.0), Ended(name, 2.0), outcome])

    def stand(self, **rollout: object) -> Stand:
        with closing(open_summary(self._ledger)) as summary:
            return stand_of(summary, "p", msgspec.structs.replace(RUNNING, **rollout))

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def outcomes(tmp_path: Path) -> Iterator[Outcomes]:
    made = Outcomes(tmp_path / "ledger.db")
    yield made
    made.close()


def files(number: int, name: str = "f") -> list[str]:
    return [f"{name}{each}.c" for each in range(number)]


def verdict(stand: Stand) -> str | None:
    return None if stand.judgement is None else stand.judgement.verdict


def test_the_versions_are_compared_at_the_wanted_files_and_then_each_time_they_are_twice_as_many(
    outcomes: Outcomes,
) -> None:
    outcomes.compile(files(19), 1, 100)
    outcomes.compile(files(9), 2, 99)
    assert outcomes.stand() == Stand(9, 9)
    assert outcomes.stand().progress(RUNNING) == "9 of 10 files, at this share 10 builds"
    outcomes.compile(["f9.c"], 2, 99)
    assert verdict(outcomes.stand()) == "promoted"
    assert verdict(outcomes.stand(looks=1)) is None
    outcomes.compile(files(19), 2, 99)
    assert verdict(outcomes.stand(looks=1)) is None
    outcomes.compile(["f19.c"], 1, 100)
    outcomes.compile(["f19.c"], 2, 99)
    assert verdict(outcomes.stand(looks=1)) == "promoted"
    assert verdict(outcomes.stand(looks=2)) is None


def test_a_version_is_promoted_if_all_conditions_hold_and_withdrawn_if_one_is_refuted_or_forbidden(
    outcomes: Outcomes,
) -> None:
    outcomes.compile(files(10), 1, 100)
    outcomes.compile(files(10), 2, 99)
    both = ("text < -0.1%", "failed < 1%")
    assert verdict(outcomes.stand(promote_if=both)) == "promoted"
    assert verdict(outcomes.stand(promote_if=(*both, "other < 0%"))) == "undecided"
    assert verdict(outcomes.stand(promote_if=("text < -2%",))) == "withdrawn"
    assert verdict(outcomes.stand(promote_if=both, withdraw_if=("text < -0.5%",))) == "withdrawn"
    assert verdict(outcomes.stand(promote_if=(), withdraw_if=("text > 0%",))) == "undecided"
    told = outcomes.stand(promote_if=(*both, "other < 0%")).judgement
    assert told is not None
    assert "text -1.000% [-1.000%, -1.000%] over 10 files" in told.reason
    assert "other is not known of two files" in told.reason


def test_each_further_comparison_is_surer_so_that_all_together_err_with_at_most_5_percent(outcomes: Outcomes) -> None:
    outcomes.compile(files(160), 1, 100)
    for number, file in enumerate(files(160)):
        outcomes.compile([file], 2, 98 if number % 2 else 100)
    widths = []
    for looks in range(4):
        judgement = outcomes.stand(looks=looks).judgement
        assert judgement is not None
        low, high = judgement.reason.partition("[")[2].partition("]")[0].split(", ")
        widths.append(float(high.strip("%")) - float(low.strip("%")))
    # The error is 2.5 % at first, and then half as much each time; a mean of 160 files is normally distributed.
    error = 1.0 / np.sqrt(160)
    assert widths == pytest.approx([2 * error * each for each in (2.2414, 2.4977, 2.7344, 2.9552)], rel=0.1)


def test_the_files_must_be_enough_without_any_one_reporter_that_the_operator_does_not_trust(
    outcomes: Outcomes,
) -> None:
    for version, text in ((1, 100), (2, 99)):
        outcomes.compile(files(12, "a"), version, text, "the token a")
        outcomes.compile(files(9, "b"), version, text, "the token b")
    stand = outcomes.stand()
    assert (stand.files, stand.all_files, stand.leaves_out, stand.judgement) == (9, 21, "the token a", None)
    told = "9 of 10 files, at this share 20 builds (21 with the token a, whose word alone decides nothing)"
    assert stand.progress(msgspec.structs.replace(RUNNING, share=0.5)) == told
    for version, text in ((1, 100), (2, 99)):
        outcomes.compile(["trusted.c"], version, text)
    assert verdict(outcomes.stand()) == "promoted"


def test_a_verdict_that_hangs_on_one_reporter_is_none(outcomes: Outcomes) -> None:
    for version in (1, 2):
        outcomes.compile(files(20, "a"), version, 100 if version == 1 else 50, "the token a")
        outcomes.compile(files(20, "b"), version, 100, "the token b")
    judgement = outcomes.stand().judgement
    assert judgement is not None
    assert judgement.verdict == "undecided"
    assert judgement.reason.endswith("; without one reporter it would be another verdict")


def test_many_small_reporters_are_left_out_together(outcomes: Outcomes) -> None:
    for version, text in ((1, 100), (2, 50)):
        for number in range(60):
            outcomes.compile([f"{number}.c"], version, text, f"the token {number:02}")
    stand = outcomes.stand(files=29)
    # 32 are left out one by one, and the other 28 as if they were one.
    assert (stand.files, stand.all_files) == (32, 60)
    assert stand.leaves_out.count("the token") == 28
    assert verdict(stand) == "promoted"
