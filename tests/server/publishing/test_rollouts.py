"""Roll-outs: a share of an alias's new sessions gets another version, until it is promoted or withdrawn."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from policybridge_client.policies import Conditions
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from policybridge_server.ledger.summary import open_summary
from tests.commands import Told, told
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.server.publishing.policies import SIGNATURE, Client, ask, client, wait_for, write_adder, write_policy

FILES = [f"src/file{number}.c" for number in range(40)]


@contextmanager
def compiling(made: Client, context: str, policy: str = "adder", **labels: str) -> Iterator[int]:
    """Compile a file; give the version that decides, and report at the end what it came to."""
    options = SessionOptions(context, labels=labels)
    with made.connection.open(PolicyReference.parse(policy), SIGNATURE, options) as session:
        ask(session)
        yield session.policy.version
        if "text" in labels:
            session.report(Outcome({"text": float(labels["text"])}, labels.get("status", "ok")))


def versions(made: Client, policy: str = "adder") -> dict[str, int]:
    """Compile all files; give the version that each got."""
    got = {}
    for file in FILES:
        with compiling(made, file, policy) as version:
            got[file] = version
    return got


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Give a repository with two versions of ``adder``; ``stable`` names the first one."""
    folder = write_policy(tmp_path / "policies")
    write_adder(folder / "2", 200)
    (folder / "aliases.toml").write_text("stable = 1\n")
    return tmp_path / "policies"


@pytest.fixture
def served(server_factory: ServerFactory, policies: Path, tmp_path: Path) -> Iterator[tuple[RunningServer, Client]]:
    server = server_factory(policies, "--allow-publish", "--ledger", tmp_path / "runs.db")
    with client(server) as made:
        yield server, made


def steps(tmp_path: Path) -> list[str]:
    """Give the steps in the ledger, the oldest first."""
    summary = open_summary(tmp_path / "runs.db", "sqlite")
    try:
        return [step.what for step in reversed(summary.steps("adder", 100))]
    finally:
        summary.close()


def test_a_share_of_the_files_gets_the_version_and_each_file_stays_with_its_own(
    served: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    _, made = served
    with compiling(made, FILES[0]) as before:
        assert before == 2
        begun = made.repository.roll_out(PolicyReference("adder", 2), 0.5)
        assert (begun.state, begun.base, begun.alias) == ("running", 1, "latest")
        few = versions(made)
        assert 8 <= sum(version == 2 for version in few.values()) <= 32
        assert set(few.values()) == {1, 2}
        assert versions(made) == few
        made.repository.roll_out(PolicyReference("adder", 2), 0.9)
        more = versions(made)
        assert [file for file in FILES if few[file] == 2 and more[file] == 1] == []
        assert sum(more.values()) > sum(few.values())
    with compiling(made, "", file=FILES[0]) as by_label, compiling(made, "") as nameless:
        assert (by_label, nameless) == (more[FILES[0]], 1)
    assert set(versions(made, "adder@2").values()) == {2}
    assert set(versions(made, "adder@stable").values()) == {1}
    made.repository.end_rollout("adder", promote=True)
    assert set(versions(made).values()) == {2}
    assert steps(tmp_path) == ["begun", "changed", "promoted"]


def test_a_session_that_is_open_keeps_its_version_when_the_roll_out_ends(served: tuple[RunningServer, Client]) -> None:
    _, made = served
    made.repository.roll_out(PolicyReference("adder", 2), 1.0)
    options = SessionOptions(context="a.c")
    with made.connection.open(PolicyReference("adder"), SIGNATURE, options) as session:
        made.repository.end_rollout("adder", promote=False, reason="slow")
        assert (ask(session), session.policy.version) == (200, 2)
    assert set(versions(made).values()) == {1}
    ended = made.repository.show("adder").rollout
    assert ended is not None
    assert (ended.state, ended.reason) == ("withdrawn", "slow")


def test_a_roll_out_to_an_alias_moves_the_alias_when_it_is_promoted(served: tuple[RunningServer, Client]) -> None:
    _, made = served
    made.repository.roll_out(PolicyReference("adder", 2), 0.5, alias="stable")
    assert set(versions(made, "adder@stable").values()) == {1, 2}
    assert set(versions(made).values()) == {2}
    with pytest.raises(PreconditionError, match="promote or withdraw it first"):
        made.repository.set_alias("adder", "stable", 2)
    made.repository.end_rollout("adder", promote=True)
    assert made.repository.show("adder").aliases == {"stable": 2}


def test_a_roll_out_survives_kill_9_and_so_does_its_end(
    server_factory: ServerFactory, policies: Path, tmp_path: Path
) -> None:
    ways: list[Callable[[Client], object]] = [
        lambda made: made.repository.roll_out(PolicyReference("adder", 2), 0.5),
        lambda made: made.repository.end_rollout("adder", promote=False),
        lambda made: made.repository.policies(),
    ]
    seen = []
    for way in ways:
        server = server_factory(policies, "--allow-publish", "--ledger", tmp_path / "runs.db")
        with client(server) as made:
            seen.append(versions(made))
            way(made)
        server.process.kill()
        server.process.wait()
    assert [set(each.values()) for each in seen] == [{2}, {1, 2}, {1}]
    assert steps(tmp_path) == ["begun", "withdrawn"]


def test_a_newer_version_ends_a_roll_out_to_latest(served: tuple[RunningServer, Client], tmp_path: Path) -> None:
    _, made = served
    made.repository.roll_out(PolicyReference("adder", 2), 0.5)
    made.repository.publish("adder", write_adder(tmp_path / "new", 300))
    assert set(versions(made).values()) == {3}
    wait_for(lambda: state(made) == "withdrawn")
    assert made.repository.roll_out(PolicyReference("adder", 3), 0.5).base == 1


def state(made: Client) -> str:
    rollout = made.repository.show("adder").rollout
    return "" if rollout is None else rollout.state


@pytest.mark.parametrize(("text", "expected", "left"), [("95", "promoted", {2}), ("100.5", "withdrawn", {1})])
def test_the_server_ends_a_roll_out_by_the_outcomes_of_files_that_both_have_compiled(
    served: tuple[RunningServer, Client], tmp_path: Path, text: str, expected: str, left: set[int]
) -> None:
    _, made = served
    for file in FILES:
        with compiling(made, file, "adder@stable", text="100"):
            pass
    conditions = Conditions(promote_if=["text < -0.1%"], files=10)
    made.repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable", conditions=conditions)
    for file in FILES[:9]:
        with compiling(made, file, "adder@stable", text=text):
            pass
    wait_for(lambda: progress(made).startswith("9 of 10 files, at this share 10 builds"))
    with compiling(made, FILES[9], "adder@stable", text=text):
        pass
    wait_for(lambda: state(made) == expected)
    ended = made.repository.show("adder").rollout
    assert ended is not None
    assert "over 10 files" in ended.reason
    assert set(versions(made, "adder@stable").values()) == left
    assert steps(tmp_path) == ["begun", "compared", expected]


def test_a_version_that_makes_compilers_fail_is_withdrawn(served: tuple[RunningServer, Client]) -> None:
    _, made = served
    for file in FILES:
        with compiling(made, file, "adder@stable", text="100"):
            pass
    conditions = Conditions(withdraw_if=["failed > 5%"], files=10)
    made.repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable", conditions=conditions)
    for number, file in enumerate(FILES[:10]):
        with compiling(made, file, "adder@stable", text="100", status="crash" if number % 2 else "ok"):
            pass
    wait_for(lambda: state(made) == "withdrawn")


def test_sessions_that_chose_their_version_themselves_decide_nothing(
    served: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    _, made = served
    made.repository.set_alias("adder", "candidate", 2)
    conditions = Conditions(promote_if=["text < -0.1%"], files=10)
    made.repository.roll_out(PolicyReference("adder", 2), 0.01, conditions=conditions)
    (new,) = {version.digest for version in made.repository.show("adder").versions if version.version == 2}
    for file in FILES:
        for policy, text in (("adder@1", "100"), ("adder@2", "50"), (f"adder@{new}", "50"), ("adder@candidate", "50")):
            with compiling(made, file, policy, text=text):
                pass
    # All of them are in the ledger when the last outcome was acknowledged.
    wait_for(lambda: progress(made).startswith("0 of 10 files, at this share 1000 builds"))
    assert (state(made), steps(tmp_path)) == ("running", ["begun"])


def progress(made: Client) -> str:
    rollout = made.repository.show("adder").rollout
    return "" if rollout is None else rollout.progress


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (("adder@1", 0.5, "latest", ()), PreconditionError),
        (("adder@2", 0.0, "latest", ()), InvalidError),
        (("adder@2", 1.5, "latest", ()), InvalidError),
        (("adder@2", float("nan"), "latest", ()), InvalidError),
        (("adder@9", 0.5, "latest", ()), NotFoundError),
        (("adder@2", 0.5, "nobody", ()), NotFoundError),
        (("adder@1", 0.5, "stable", ()), PreconditionError),
        (("adder@2", 0.5, "latest", ("text is small",)), InvalidError),
        (("adder@latest", 0.5, "latest", ()), InvalidError),
    ],
)
def test_what_cannot_be_rolled_out_is_refused_and_changes_nothing(
    shared: Client, asked: tuple[str, float, str, Sequence[str]], error: type[PolicyBridgeError]
) -> None:
    version, share, alias, conditions = asked
    wanted = Conditions(promote_if=conditions)
    with pytest.raises(error):
        shared.repository.roll_out(PolicyReference.parse(version), share, alias=alias, conditions=wanted)
    assert shared.repository.show("adder").rollout is None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("shared")
    adder = write_policy(folder / "policies")
    write_adder(adder / "2", 200)
    (adder / "aliases.toml").write_text("stable = 1\n")
    serve = ("--allow-publish", "--ledger", folder / "runs.db")
    with running_server(folder / "policies", folder, *serve) as server, client(server) as made:
        yield made


def test_conditions_need_a_ledger_and_a_changed_repository_needs_leave(
    server_factory: ServerFactory, policies: Path
) -> None:
    with client(server_factory(policies, "--allow-publish")) as made:
        with pytest.raises(PreconditionError, match="--ledger"):
            made.repository.roll_out(PolicyReference("adder", 2), 0.5, conditions=Conditions(["text < 0%"]))
        made.repository.roll_out(PolicyReference("adder", 2), 0.5)
    with client(server_factory(policies)) as made:
        with pytest.raises(PreconditionError, match="--allow-publish"):
            made.repository.end_rollout("adder", promote=True)
        assert set(versions(made).values()) == {1, 2}


def test_the_command_line_rolls_out_promotes_and_shows(server_factory: ServerFactory, policies: Path) -> None:
    server = server_factory(policies, "--allow-publish")

    def policies_cli(*words: str) -> Told:
        return told("policies", *words, "--server", server.grpc)

    assert policies_cli("rollout", "adder@2", "--share", "10%").stdout == (
        "adder@latest is 2 for 10% of the files, 1 for the others\n"
    )
    shown = policies_cli("show", "adder").stdout.splitlines()
    assert shown[3].startswith("  adder@latest is 2 for 10% of the files, 1 for the others")
    assert policies_cli("retire", "adder", "2").stderr.endswith("let these name another version first\n")
    promoted = policies_cli("promote", "adder", "--json")
    assert json.loads(promoted.stdout)["state"] == "promoted"
    refused = policies_cli("withdraw", "adder")
    assert (refused.returncode, refused.stderr) == (1, "policybridge policies: no roll-out of adder runs\n")
    mistyped = policies_cli("rollout", "adder@2", "--share", "ten")
    assert (mistyped.returncode, "such as 10% or 0.1" in mistyped.stderr) == (2, True)
