"""A replica serves what its leader publishes, with the leader there and without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_client.credentials import Credentials
from policybridge_client.policies import Conditions, RepositoryClient
from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyReference
from tests.certificates import Authority, token, write_tokens
from tests.commands import Told, told
from tests.repositories import answering, write_python
from tests.server.following.replicas import leading, replica
from tests.server.publishing.policies import TOML, Client, ask, wait_for, without_progress, write_adder, write_policy
from tests.server.publishing.test_rollouts import FILES, compiling, progress, state

Both = tuple[Client, Client]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Give a leader and a replica that stay as long as this file's tests."""
    folder = tmp_path_factory.mktemp("pb")
    write_policy(folder / "policies")
    with (
        leading(folder / "policies", folder / "l") as (leader, running),
        replica(running.grpc, folder / "r") as (follower, _),
    ):
        yield leader, follower


def test_a_replica_serves_versions_aliases_and_roll_outs_as_the_leader_does(both: Both, tmp_path: Path) -> None:
    leader, follower = both
    files = [write_adder(tmp_path / str(number), number) for number in (100, 200, 300)]

    def same(reference: str) -> int:
        assert leader.repository.replicas("all").met
        version, number = leader.ask(reference)
        assert follower.ask(reference) == (version, number)
        return number

    leader.repository.publish("own", files[0], config=TOML, aliases=["stable"])
    assert same("own") == same("own@stable") == 100
    leader.repository.publish("own", files[1], aliases=["next"])
    assert (same("own"), same("own@stable"), same("own@next")) == (200, 100, 200)
    leader.repository.set_alias("own", "stable", 2)
    assert same("own@stable") == 200
    third = leader.repository.publish("own", files[2])
    rollout = leader.repository.roll_out(PolicyReference("own", third.version), 0.5)
    assert same("own") == 200
    assert without_progress(follower.repository.show("own").rollout) == without_progress(rollout)
    leader.repository.end_rollout("own", promote=True)
    assert same("own") == 300
    leader.repository.retire("own", 1)
    assert leader.repository.replicas("all").met
    assert [each.version for each in follower.repository.show("own").versions] == [3, 2]


def test_a_session_on_a_replica_stays_on_its_version(both: Both, tmp_path: Path) -> None:
    leader, follower = both
    leader.repository.publish("stays", write_adder(tmp_path / "1", 1), config=TOML)
    assert leader.repository.replicas("all").met
    session = follower.open("stays")
    assert ask(session) == 1
    leader.repository.publish("stays", write_adder(tmp_path / "2", 2))
    leader.repository.retire("stays", 1)
    assert leader.repository.replicas("all").met
    assert (ask(session), follower.ask("stays")[1]) == (1, 2)
    session.close()


def test_a_replica_takes_no_change_and_names_its_leader(both: Both, tmp_path: Path) -> None:
    _, follower = both
    files = write_adder(tmp_path / "1", 1)
    for change in (
        lambda: follower.repository.publish("adder", files),
        lambda: follower.repository.set_alias("adder", "stable", 1),
        lambda: follower.repository.retire("adder", 1),
        lambda: follower.repository.roll_out(PolicyReference("adder", 1), 0.5),
    ):
        with pytest.raises(PreconditionError, match=r"is a replica and takes no changes; its leader does: grpc:127"):
            change()


def test_who_waits_for_replicas_learns_what_each_lacks(tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    with leading(tmp_path / "policies", tmp_path / "l") as (leader, running):
        waiting = ["--server", running.grpc, "--wait-seconds", 1]
        assert "no server follows this one" in policies("replicas", "--server", running.grpc).stdout
        assert policies("alias", "adder", "other", 1, "--wait-for", "all", *waiting).returncode == 0
        with (
            replica(running.grpc, tmp_path / "a") as (_, first),
            replica(running.grpc, tmp_path / "b", "--allow-python"),
        ):
            write_python(tmp_path, "python", answering("observation['x']"))
            publish = ["publish", "python", tmp_path / "python" / "1"]
            toml = ["--policy-toml", tmp_path / "python" / "policy.toml"]
            told = policies(*publish, *toml, "--wait-for", "all", *waiting)
            assert told.returncode == 3
            assert told.stdout.startswith("python@1 sha256:")
            assert f"socket:{tmp_path / 'a' / 's'} lacks python@1: " in told.stderr
            assert "Python code" in told.stderr
            wait_for(
                lambda: [str(tmp_path / "b") in each.name for each in leader.repository.replicas().behind] == [False]
            )
            first.kill()
        wait_for(lambda: all(each.away is not None for each in leader.repository.replicas().replicas))
        most = policies("alias", "adder", "stable", 1, "--wait-for", "most", *waiting)
        assert most.returncode == 3
        assert most.stderr.count("has been away for") == 2


def policies(*arguments: object) -> Told:
    return told("policies", *arguments)


def test_a_replica_serves_on_without_its_leader_and_catches_up(tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    with leading(tmp_path / "policies", tmp_path / "l") as (leader, running):
        address = running.grpc
        leader.repository.publish("adder", write_adder(tmp_path / "2", 200))
        with replica(address, tmp_path / "r") as (follower, own):
            session = follower.open()
            running.kill()
            assert (ask(session), follower.ask()[1]) == (200, 200)
            own.kill()
    log = tmp_path / "log"
    with replica(address, tmp_path / "r", log=log) as (follower, own):
        # It is started again, and the leader is still away.
        assert follower.ask()[1] == 200
        assert "cannot be followed; its last policies are served on" in log.read_text()
        # A version that was withdrawn meanwhile is never served, however late it comes.
        listen = ["--grpc", address.removeprefix("grpc:")]
        write_adder(tmp_path / "policies" / "adder" / "3", 300)
        write_adder(tmp_path / "policies" / "adder" / "4", 400)
        (tmp_path / "policies" / "adder" / "rollout.json").write_text(
            '{"version": 4, "base": 3, "alias": "latest", "share": 0.5, "state": "withdrawn"}'
        )
        numbers = set()
        with leading(tmp_path / "policies", tmp_path / "l", *listen):
            wait_for(lambda: numbers.add(follower.ask()[1]) or 300 in numbers)  # type: ignore[func-returns-value]
            assert follower.ask("adder@4")[1] == 400
            assert follower.ask()[1] == 300
            assert numbers == {200, 300}


def test_a_roll_out_ends_by_the_outcomes_at_the_leader_alone(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "policies")
    write_adder(folder / "2", 200)
    (folder / "aliases.toml").write_text("stable = 1\n")

    def compile_all(made: Client, text: str) -> None:
        for file in FILES[:10]:
            with compiling(made, file, "adder@stable", text=text):
                pass

    with (
        leading(tmp_path / "policies", tmp_path / "l", "--ledger", tmp_path / "l.db") as (leader, running),
        replica(running.grpc, tmp_path / "r", "--ledger", tmp_path / "r.db") as (follower, _),
    ):
        compile_all(leader, "100")
        compile_all(follower, "100")
        conditions = Conditions(promote_if=["text < -0.1%"], files=10)
        leader.repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable", conditions=conditions)
        assert leader.repository.replicas("all").met
        compile_all(follower, "95")
        wait_for(lambda: progress(leader).startswith("0 of 10 files"))
        assert progress(follower) == ""
        assert state(leader) == state(follower) == "running"
        compile_all(leader, "95")
        wait_for(lambda: state(leader) == "promoted")
        wait_for(lambda: state(follower) == "promoted")
        assert follower.ask("adder@stable")[0].version == 2


def test_a_replica_uses_no_file_whose_digest_is_another(tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    with leading(tmp_path / "policies", tmp_path / "l") as (leader, running):
        assert leader.ask()[1] == 100
        write_adder(tmp_path / "policies" / "adder" / "1", 666)
        with replica(running.grpc, tmp_path / "r") as (follower, _):
            (lacking,) = leader.repository.replicas("all", 0.1).behind
            assert "adder@1: the files fetched for adder@1 have the digest" in str(lacking)
            assert [each.versions for each in follower.repository.policies()] == [0]


def test_a_replica_follows_over_tls_with_a_token_of_the_scope_follow(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    served = authority.issue("server")
    write_policy(tmp_path / "policies")
    tokens = write_tokens(tmp_path / "tokens.toml", {name: [name] for name in ("follow", "publish", "read")})
    files = {name: tmp_path / name for name in ("follow", "publish", "read")}
    for name, file in files.items():
        file.write_text(token(name))
    secured = ["--tls-certificate", served.certificate, "--tls-key", served.key, "--tokens", tokens]
    shown = ["--follow-ca", authority.ca, "--follow-token-file"]
    log = tmp_path / "log"
    with leading(tmp_path / "policies", tmp_path / "l", *secured) as (leader, running):
        with replica(running.grpc, tmp_path / "x", *shown, files["read"], log=log) as (refused, _):
            assert refused.repository.policies() == []
            assert "follow" in log.read_text().partition("its last policies are served on")[2]
        with replica(running.grpc, tmp_path / "r", *shown, files["follow"]) as (follower, _):
            assert follower.ask() == leader.ask()
            publisher = Credentials(ca=authority.ca, token_file=files["publish"])
            with RepositoryClient(running.grpc, credentials=publisher) as trainer:
                version = trainer.publish("adder", write_adder(tmp_path / "2", 200))
            wait_for(lambda: follower.ask()[0] == version)


def test_all_workers_of_a_replica_serve_what_it_says_to_serve(tmp_path: Path) -> None:
    write_policy(tmp_path / "policies")
    with (
        leading(tmp_path / "policies", tmp_path / "l", "--workers", 2) as (leader, running),
        replica(running.grpc, tmp_path / "r", "--workers", 2) as (follower, _),
        RepositoryClient(running.grpc) as first,
        RepositoryClient(running.grpc) as second,
    ):
        # Whichever worker is asked knows the replicas of all.
        assert [len(each.replicas("all").replicas) for each in (first, second, leader.repository)] == [1, 1, 1]
        for number in (200, 300):
            leader.repository.publish("adder", write_adder(tmp_path / str(number), number), aliases=["stable"])
            assert leader.repository.replicas("all").met
            assert {follower.ask(policy)[1] for policy in ("adder", "adder@stable") for _ in range(6)} == {number}
        leader.repository.retire("adder", 1)
        assert leader.repository.replicas("all").met
        assert [each.version for each in follower.repository.show("adder").versions] == [3, 2]
