"""A leader that was restored from an older copy: its replicas keep what it never had, and no number stands for two."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.policy_service_pb2 import PolicyVersion
from policybridge_client.leader import LeaderLink
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from tests.conftest import command
from tests.server.following.replicas import leading, replica, serving
from tests.server.publishing.policies import TOML, Client, wait_for, write_adder, write_policy


def publish(leader: Client, folder: Path, number: int) -> int:
    """Publish a version that adds ``number``."""
    return leader.repository.publish("adder", write_adder(folder / f"files-{number}", number)).version


def copied(repository: Path, number: int) -> None:
    """Make the repository what a copy from before the version ``number`` would restore: with other inodes."""
    restored = repository.with_name("restored")
    shutil.copytree(repository / "adder", restored, ignore=shutil.ignore_patterns(str(number)))
    shutil.rmtree(repository / "adder")
    restored.rename(repository / "adder")


def rolled_back(repository: Path, number: int) -> None:
    """Make the repository what a snapshot of the disk from before the version ``number`` would restore."""
    shutil.rmtree(repository / "adder" / str(number))


def kept(leader: Client) -> list[str]:
    return [version for each in leader.repository.replicas().replicas for version in each.kept]


@pytest.mark.parametrize("restore", [copied, rolled_back])
def test_replicas_keep_the_versions_that_a_restored_leader_never_had(tmp_path: Path, restore: object) -> None:
    repository = write_policy(tmp_path / "policies").parent
    with leading(repository, tmp_path / "l") as (leader, running):
        address = running.grpc
        assert [publish(leader, tmp_path, number) for number in (200, 300)] == [2, 3]
        with replica(address, tmp_path / "r") as (follower, _):
            assert follower.ask()[1] == 300
            running.kill()
            restore(repository, 3)  # type: ignore[operator]
            listen = ("--grpc", address.removeprefix("grpc:"))
            with leading(repository, tmp_path / "l", *listen) as (restored, _):
                wait_for(lambda: kept(restored) == ["adder@3"])
                assert "keeps adder@3, which this server never had" in str(restored.repository.replicas().replicas[0])
                # Clients that name it still get it; `latest` is the leader's.
                assert (follower.ask("adder@3")[1], follower.ask()[1]) == (300, 200)
                # Its number is not given again, and replicas keep it beside what is published.
                wait_for(lambda: publish(restored, tmp_path, 400) >= 4)
                assert restored.repository.replicas("all", 60).met
                assert (follower.ask("adder@3")[1], follower.ask()[1]) == (300, 400)
        with replica(address, tmp_path / "r") as (follower, _):
            # It was started again without its leader.
            assert (follower.ask("adder@3")[1], follower.ask()[1]) == (300, 400)


def test_a_policy_that_a_leader_no_longer_names_stays_as_it_is_at_its_replicas(tmp_path: Path) -> None:
    repository = write_policy(tmp_path / "policies").parent
    with leading(repository, tmp_path / "l") as (leader, running):
        address = running.grpc
        leader.repository.publish("own", write_adder(tmp_path / "own", 7), config=TOML)
        with replica(address, tmp_path / "r") as (follower, _):
            assert follower.ask("own")[1] == 7
            running.kill()
            shutil.rmtree(repository / "own")
            with leading(repository, tmp_path / "l", "--grpc", address.removeprefix("grpc:")) as (restored, _):
                publish(restored, tmp_path, 200)
                wait_for(lambda: follower.ask()[1] == 200)
                with pytest.raises(NotFoundError):
                    restored.ask("own")
                assert follower.ask("own")[1] == 7


def test_the_operator_adopts_a_version_that_replicas_keep_or_lets_them_retire_it(tmp_path: Path) -> None:
    repository = write_policy(tmp_path / "policies").parent
    with leading(repository, tmp_path / "l") as (leader, running):
        address = running.grpc
        assert [publish(leader, tmp_path, number) for number in (200, 300, 400)] == [2, 3, 4]
        wanted = {version.version: version.digest for version in leader.repository.show("adder").versions}
        with replica(address, tmp_path / "r") as (follower, own):
            assert follower.ask()[1] == 400
            running.kill()
            copied(repository, 4)
            shutil.rmtree(repository / "adder" / "3")
            listen = ("--grpc", address.removeprefix("grpc:"))
            with leading(repository, tmp_path / "l", *listen) as (restored, _):
                wait_for(lambda: sorted(kept(restored)) == ["adder@3", "adder@4"])
                with pytest.raises(InvalidError, match="these files have the digest"):
                    restored.repository.publish("adder", write_adder(tmp_path / "other", 666), adopted=3)
                with pytest.raises(PreconditionError, match="no replica keeps"):
                    restored.repository.publish("adder", write_adder(tmp_path / "other", 666), adopted=9)
                adopt = command("policies", "adopt", "adder@3", "--server", address, "--from", own.grpc)
                done = subprocess.run(adopt, capture_output=True, text=True, timeout=60, check=False)
                assert (done.stdout, done.stderr) == (f"adder@3 {wanted[3]}\n", "")
                restored.repository.retire("adder", 4)
                wait_for(lambda: kept(restored) == [])
                assert restored.repository.replicas("all", 60).met
                assert (restored.ask()[1], follower.ask()[1]) == (300, 300)
                with pytest.raises(NotFoundError):
                    follower.ask("adder@4")
                assert publish(restored, tmp_path, 500) == 5


def test_a_number_that_a_restored_leader_gave_again_stays_with_its_first_version_at_replicas(tmp_path: Path) -> None:
    repository = write_policy(tmp_path / "policies").parent
    with leading(repository, tmp_path / "l") as (leader, running):
        address = running.grpc
        assert publish(leader, tmp_path, 200) == 2
        with replica(address, tmp_path / "r") as (follower, own):
            assert follower.ask()[1] == 200
            own.kill()
        running.kill()
    copied(repository, 2)
    listen = ("--grpc", address.removeprefix("grpc:"))
    with leading(repository, tmp_path / "l", *listen) as (restored, _):
        # No replica is there to say that the number is taken.
        assert publish(restored, tmp_path, 300) == 2
        with replica(address, tmp_path / "r") as (follower, _):
            wait_for(lambda: bool(restored.repository.replicas("all", 0.1).behind))
            wait_for(lambda: "another version of that number" in str(restored.repository.replicas().replicas[0]))
            assert (follower.ask("adder@2")[1], follower.ask()[1]) == (200, 100)
            assert publish(restored, tmp_path, 400) == 3
            wait_for(lambda: follower.ask()[1] == 400)


def test_the_number_of_a_retired_version_is_not_given_again(tmp_path: Path) -> None:
    repository = write_policy(tmp_path / "policies").parent
    with leading(repository, tmp_path / "l") as (leader, running):
        assert publish(leader, tmp_path, 200) == 2
        leader.repository.roll_back("adder")
        leader.repository.retire("adder", 2)
        assert publish(leader, tmp_path, 300) == 3
        leader.repository.roll_back("adder", 1)
        leader.repository.retire("adder", 3)
        running.kill()
    with leading(repository, tmp_path / "l") as (leader, _):
        assert publish(leader, tmp_path, 400) == 4
    assert json.loads((repository / "adder" / "numbers.json").read_text())["highest"] == 3


def test_a_replica_that_lies_makes_its_leader_neither_skip_nor_remember_much(tmp_path: Path) -> None:
    repository = write_policy(tmp_path / "policies").parent
    numbers = repository / "adder" / "numbers.json"
    digests = [f"sha256:{number:064x}" for number in range(500)]
    lies = [("adder", 2**60, "e", digests[0]), ("adder", 7, "e" * 10_000, digests[0]), ("adder", 7, "e", "\x1b[31m")]
    lies += [("nobody", 1, "e", digests[0]), ("adder", 0, "e", digests[0])]
    lies += [("adder", 2 + number, "e", each) for number, each in enumerate(digests)]
    with leading(repository, tmp_path / "l", "--verbose") as (leader, running), LeaderLink(running.grpc) as link:
        follows = link.follow(pb.Hello(id="liar", name="liar"))
        next(follows)
        for name, number, epoch, each in lies:
            version = PolicyVersion(name=name, version=number, digest=each)
            link.adopted(pb.Adopted(kept=[pb.Kept(version=version, epoch=epoch)]))
        wait_for(lambda: "501" in str(leader.repository.replicas().replicas[0]))
        assert publish(leader, tmp_path, 200) <= 502
        assert numbers.stat().st_size < 10_000


def test_a_repository_at_an_address_has_no_epochs_so_that_what_it_retires_is_retired_everywhere(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    at_address = ("--repository", f"file://{tmp_path / 'bucket'}", "--allow-publish", "--poll", 3600)
    with serving(tmp_path / "l", *at_address) as (leader, running):
        leader.repository.publish("adder", write_adder(tmp_path / "files-100", 100), config=TOML)
        with replica(running.grpc, tmp_path / "r") as (follower, _):
            assert [publish(leader, tmp_path, number) for number in (200, 300)] == [2, 3]
            leader.repository.retire("adder", 1)
            assert leader.repository.replicas("all", 60).met
            assert kept(leader) == []
            assert [each.version for each in follower.repository.show("adder").versions] == [3, 2]
        assert not list(tmp_path.rglob("numbers.json"))


def test_a_leader_serves_a_policy_whose_numbers_cannot_be_written(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policies")
    # In place of a file system that is read-only.
    (policy / "numbers.json").mkdir()
    with leading(policy.parent, tmp_path / "l") as (leader, _):
        assert leader.ask()[1] == 100
        with pytest.raises(PreconditionError, match="the repository cannot be written"):
            publish(leader, tmp_path, 200)
