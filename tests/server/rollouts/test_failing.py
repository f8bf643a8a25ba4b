"""The sequential test of failures: it withdraws what fails more often, and seldom what does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.trials import Trial, Trials
from policybridge_server.repository import StoredPolicy, StoredVersion
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.rollout import Rollout
from policybridge_server.rollouts.failing import ERROR, evidence, judged
from tests.conftest import ServerFactory
from tests.server.publishing.policies import SIGNATURE, Client, ask, client, wait_for

CONFIG = PolicyConfig("python")

POLICY = """
from policybridge_serdes import ElementType, TensorSpec


class Policy:
    features = [TensorSpec("x", ElementType.INT64)]
    advice = TensorSpec("advice", ElementType.INT64)

    def evaluate(self, observation, session):
        {does}
"""


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_of_versions_that_fail_alike_few_are_withdrawn_however_often_one_looks(share: float) -> None:
    generator = np.random.default_rng(1)
    withdrawn = 0
    for _ in range(300):
        news = generator.random(100) < share
        counts = np.cumsum(news)
        withdrawn += any(evidence(int(new), at - int(new), share) >= 1 / ERROR for at, new in enumerate(counts, 1))
    assert withdrawn <= 300 * 3 * ERROR


@pytest.mark.parametrize(("share", "files"), [(0.01, 2), (0.1, 3), (0.5, 9), (0.9, 62), (1.0, 2)])
def test_a_version_that_always_fails_is_withdrawn_after_a_few_files(share: float, files: int) -> None:
    trial = Trial()
    for number in range(files - 1):
        trial.add(f"{number}.c", is_new=True, has_failed=True)
    assert judged(trial, share)[2] < 1 / ERROR
    trial.add("last.c", is_new=True, has_failed=True)
    assert judged(trial, share)[2] >= 1 / ERROR


def test_a_file_counts_once_by_its_first_failure() -> None:
    trial = Trial()
    for _ in range(100):
        trial.add("a.c", is_new=False, has_failed=True)
        trial.add("a.c", is_new=True, has_failed=True)
        trial.add("b.c", is_new=True, has_failed=True)
    assert judged(trial, 0.1)[:2] == (1, 1)


def test_at_the_whole_share_files_that_are_well_speak_for_the_version() -> None:
    trial = Trial()
    for number in range(100):
        trial.add(f"{number}.c", is_new=True, has_failed=number % 50 == 0)
    assert judged(trial, 1.0)[2] < 1


def test_a_session_of_an_earlier_share_does_not_erase_the_failures_under_the_present_one() -> None:
    trials = Trials()

    def opened(file: str, share: float) -> SessionView:
        rollout = Rollout(version=2, base=1, alias="latest", share=share, begun=1.0)
        versions = {number: StoredVersion(PolicyVersion("p", number, ""), Path(), CONFIG) for number in (1, 2)}
        view = SessionView(file, PolicyVersion("p", 2, ""), file=file, alias="latest", failures=1)
        trials.opened(view, StoredPolicy("p", Path(), CONFIG, versions=versions, rollout=rollout))
        return view

    early, late = opened("early.c", 0.1), opened("late.c", 0.5)
    trials.ended(late)
    trials.ended(early)
    trials.failed("early.c")
    assert [(key.share, trial.failed) for key, trial in trials.all.items()] == [(0.5, {"late.c": True})]


@pytest.mark.parametrize(
    ("file", "alias", "version", "counts"),
    [
        ("a.c", "latest", 2, True),
        ("a.c", "latest", 1, True),
        ("a.c", "latest", 3, False),
        ("a.c", "", 2, False),
        ("a.c", "stable", 2, False),
        ("", "latest", 2, False),
    ],
)
def test_a_session_counts_if_it_has_a_file_and_the_roll_out_chose_its_version(
    file: str, alias: str, version: int, counts: bool
) -> None:
    trials = Trials()
    rollout = Rollout(version=2, base=1, alias="latest", share=0.5, begun=1.0)
    versions = {number: StoredVersion(PolicyVersion("p", number, ""), Path(), CONFIG) for number in (1, 2)}
    view = SessionView("s", PolicyVersion("p", version, ""), file=file, alias=alias, failures=1)
    trials.opened(view, StoredPolicy("p", Path(), CONFIG, versions=versions, rollout=rollout))
    trials.ended(view)
    trials.failed("s")
    failed = [trial.failed for trial in trials.all.values()]
    assert failed == ([{"a.c": version == 2}] if counts else [])


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Give a repository in which the version 2 of ``adder`` raises at every decision."""
    folder = tmp_path / "policies" / "adder"
    for number, does in ((1, "return observation['x'] + 100"), (2, "raise ValueError('of no use')")):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "policy.py").write_text(POLICY.format(does=does))
    (folder / "policy.toml").write_text('backend = "python"\n')
    return tmp_path / "policies"


@contextmanager
def opened(made: Client, file: str) -> Iterator[int]:
    with made.connection.open(PolicyReference("adder"), SIGNATURE, SessionOptions(context=file)) as session:
        yield session.policy.version
        if session.policy.version == 2:
            with pytest.raises(PolicyFailedError):
                ask(session)
        else:
            ask(session)


def state(made: Client) -> tuple[str, str]:
    rollout = made.repository.show("adder").rollout
    assert rollout is not None
    return rollout.state, rollout.reason


@pytest.mark.parametrize("serve", [(), ("--ledger", "runs.db"), ("--workers", "2")])
def test_a_version_that_raises_at_every_decision_is_withdrawn_without_conditions_or_outcomes(
    server_factory: ServerFactory, policies: Path, tmp_path: Path, serve: tuple[str, ...]
) -> None:
    options = [tmp_path / each if each.endswith(".db") else each for each in serve]
    server = server_factory(policies, "--allow-publish", "--allow-python", *options)
    with client(server) as made:
        made.repository.roll_out(PolicyReference("adder", 2), 0.1)
        asked = []
        for number in range(200):
            with opened(made, f"{number}.c") as version:
                asked.append(version)
            if asked.count(2) == 3:
                break
        wait_for(lambda: state(made)[0] == "withdrawn")
        assert state(made)[1].startswith("3 files failed with 2, 0 with 1: ")
        with opened(made, "0.c") as version:
            assert version == 1


def test_a_status_that_a_trusted_client_reports_counts_too(
    server_factory: ServerFactory, policies: Path, tmp_path: Path
) -> None:
    (policies / "adder" / "2" / "policy.py").write_text(POLICY.format(does="return observation['x'] + 200"))
    server = server_factory(policies, "--allow-publish", "--allow-python", "--ledger", tmp_path / "runs.db")
    with client(server) as made:
        made.repository.roll_out(PolicyReference("adder", 2), 1.0)
        for file in ("a.c", "b.c"):
            options = SessionOptions(context=file)
            with made.connection.open(PolicyReference("adder"), SIGNATURE, options) as session:
                ask(session)
                session.report(Outcome({}, "fallback"))
        wait_for(lambda: state(made)[0] == "withdrawn")
