"""Roll-outs among clients that decide by the form of their session's version."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policybridge_client import connect
from policybridge_client.contract import Connection
from policybridge_client.local import LocalSession, decide_here
from policybridge_client.policies import Conditions, RepositoryClient
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from tests.server.ledger.asking import await_forms_of
from tests.server.publishing.policies import SIGNATURE, ask, wait_for, write_adder, write_policy
from tests.serving import started

FILES = [f"file {number}.c" for number in range(24)]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    adder = write_policy(tmp_path / "policies")
    write_adder(adder / "2", 200)
    (adder / "aliases.toml").write_text("stable = 1\n")
    words = ("--repository", tmp_path / "policies", "--allow-publish", "--ledger", tmp_path / "runs.db")
    with started("--grpc", f"unix:{tmp_path / 's'}", *words) as (_, addresses):
        for version in (1, 2):
            await_forms_of(addresses[0], f"adder@{version}", SIGNATURE)
        yield addresses[0]


def compiled(connection: Connection, file: str, text: float, *, here: bool = True) -> tuple[int, float]:
    """Compile a file; give the version and the advice."""
    options = SessionOptions(context=file, evaluates=here)
    session = connection.open(PolicyReference("adder", alias="stable"), SIGNATURE, options)
    with decide_here(session, SIGNATURE, asks=False) if here else session as deciding:
        assert isinstance(deciding, LocalSession) is here
        advice = ask(deciding)
        deciding.report(Outcome({"text": text}, "ok"))
        return deciding.policy.version, advice


def test_files_get_the_versions_that_they_get_from_the_server_and_their_outcomes_decide(address: str) -> None:
    conditions = Conditions(promote_if=["text < -0.1%"])
    with closing(RepositoryClient(address, timeout=120)) as repository, connect(address, timeout=120) as connection:
        before = [compiled(connection, file, 100.0) for file in FILES]
        repository.roll_out(PolicyReference("adder", 2), 0.5, alias="stable", conditions=conditions)
        here = [compiled(connection, file, 50.0) for file in FILES]
        assert here == [compiled(connection, file, 50.0, here=False) for file in FILES]
        assert {version for version, _ in before} == {1}
        assert {version for version, _ in here} == {1, 2}
        assert len({advice for _, advice in here}) == 2
        repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable", conditions=conditions)
        for file in FILES:
            compiled(connection, file, 50.0)
        wait_for(lambda: state_of(repository) == "promoted")


def state_of(repository: RepositoryClient) -> str:
    rollout = repository.show("adder").rollout
    assert rollout is not None
    return rollout.state
