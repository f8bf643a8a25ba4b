"""The way back for `latest`, and the files of a version that went wrong."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_client.downloads import receive_files
from policybridge_core.digest import digest
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_server.ledger.summary import open_summary
from tests.commands import Told, told
from tests.conftest import RunningServer, ServerFactory
from tests.server.following.replicas import leading, replica
from tests.server.publishing.policies import Client, client, write_adder, write_policy

Cli = Callable[..., Told]


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Give a repository with three versions of ``adder``, which add 100, 200 and 300."""
    folder = write_policy(tmp_path / "policies")
    write_adder(folder / "2", 200)
    write_adder(folder / "3", 300)
    return tmp_path / "policies"


@pytest.fixture
def served(server_factory: ServerFactory, policies: Path, tmp_path: Path) -> Iterator[tuple[RunningServer, Client]]:
    server = server_factory(policies, "--allow-publish", "--ledger", tmp_path / "runs.db")
    with client(server) as made:
        yield server, made


def latest(made: Client) -> int:
    """Give the version that a new session gets, and check that the server says the same."""
    version, number = made.ask()
    assert (made.repository.show("adder").summary.latest, number) == (version.version, 100 * version.version)
    return version.version


def test_latest_goes_back_and_stays_there_until_a_newer_version_is_published(
    served: tuple[RunningServer, Client], server_factory: ServerFactory, policies: Path, tmp_path: Path
) -> None:
    server, made = served
    with made.open() as running:
        step = made.repository.roll_back("adder", reason="it crashes")
        assert (step.version, step.base, step.state, step.reason) == (3, 2, "withdrawn", "it crashes")
        assert (running.policy.version, latest(made)) == (3, 2)
    assert made.ask("adder@3")[1] == 300
    made.repository.roll_back("adder")
    assert latest(made) == 1
    with pytest.raises(PreconditionError, match="no version before 1"):
        made.repository.roll_back("adder")
    server.process.kill()
    server.process.wait()
    with client(server_factory(policies, "--allow-publish", "--ledger", tmp_path / "runs.db")) as made:
        assert latest(made) == 1
        made.repository.publish("adder", write_adder(tmp_path / "new", 400))
        assert latest(made) == 4
    summary = open_summary(tmp_path / "runs.db", "sqlite")
    try:
        steps = [(step.what, step.rollout.version, step.rollout.base) for step in summary.steps("adder", 100)]
    finally:
        summary.close()
    assert steps == [("rolled back", 2, 1), ("rolled back", 3, 2)]


def test_latest_goes_to_a_version_that_is_named_and_forward_again(served: tuple[RunningServer, Client]) -> None:
    _, made = served
    made.repository.roll_back("adder", 1)
    assert latest(made) == 1
    # Without the version that was rolled back, the one between must not become `latest`.
    made.repository.retire("adder", 3)
    assert latest(made) == 1
    step = made.repository.roll_back("adder", 2)
    assert (step.state, step.version, step.base, latest(made)) == ("promoted", 2, 1, 2)


def test_what_was_withdrawn_does_not_come_back_when_a_version_is_rolled_out_to_another_alias(
    served: tuple[RunningServer, Client],
) -> None:
    _, made = served
    made.repository.set_alias("adder", "stable", 1)
    made.repository.roll_out(PolicyReference("adder", 3), 0.5)
    made.repository.end_rollout("adder", promote=False)
    made.repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable")
    assert latest(made) == 2
    # `latest` goes back without an end of the roll-out to `stable`.
    made.repository.roll_back("adder", 1)
    running = made.repository.show("adder").rollout
    assert running is not None
    assert (running.state, running.alias, running.version, latest(made)) == ("running", "stable", 2, 1)
    made.repository.end_rollout("adder", promote=True)
    assert (made.ask("adder@stable")[1], latest(made)) == (200, 1)


def test_a_version_that_is_being_rolled_out_to_latest_is_withdrawn_when_latest_goes_back(
    served: tuple[RunningServer, Client],
) -> None:
    _, made = served
    made.repository.roll_out(PolicyReference("adder", 3), 0.5)
    with pytest.raises(PreconditionError, match="withdraw it, or say --to N"):
        made.repository.roll_back("adder")
    made.repository.roll_back("adder", 1)
    ended = made.repository.show("adder").rollout
    assert ended is not None
    assert (ended.state, ended.version, latest(made)) == ("withdrawn", 3, 1)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"leaves": 2}, PreconditionError),
        ({"to": 3}, PreconditionError),
        ({"to": 9}, NotFoundError),
        ({"policy": "nobody"}, NotFoundError),
    ],
)
def test_a_way_back_that_makes_no_sense_is_refused(
    served: tuple[RunningServer, Client], asked: dict[str, object], error: type[PolicyBridgeError]
) -> None:
    _, made = served
    with pytest.raises(error):
        made.repository.roll_back(**{"policy": "adder", **asked})  # type: ignore[arg-type]
    assert latest(made) == 3


def test_a_version_that_cannot_be_loaded_does_not_become_latest_again(
    served: tuple[RunningServer, Client], policies: Path
) -> None:
    _, made = served
    (policies / "adder" / "2" / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(PreconditionError, match="have changed"):
        made.repository.roll_back("adder")
    assert latest(made) == 3
    made.repository.roll_back("adder", 1)
    assert latest(made) == 1


def test_replicas_go_back_with_their_leader(policies: Path, tmp_path: Path) -> None:
    with (
        leading(policies, tmp_path / "leader") as (leader, running),
        replica(running.grpc, tmp_path / "r") as (made, _),
    ):
        leader.repository.roll_back("adder", 1)
        assert leader.repository.replicas("all", 60).met
        assert latest(made) == 1
        leader.repository.retire("adder", 3)
        assert leader.repository.replicas("all", 60).met
        assert latest(made) == 1


@pytest.fixture
def cli(server_factory: ServerFactory, policies: Path) -> Cli:
    server = server_factory(policies, "--allow-publish")
    return lambda *words: told("policies", *words[:2], "--server", server.grpc, *words[2:])


def test_a_version_is_written_with_an_at_sign_or_a_space_in_all_commands(cli: Cli, tmp_path: Path) -> None:
    refused = cli("rollback", "adder@2")
    assert (refused.returncode, refused.stderr) == (
        1,
        "policybridge policies: adder@latest is 3, and not 2; --to N says where it goes\n",
    )
    assert cli("rollback", "adder", 3).stdout == "adder@3 is withdrawn; latest is 2\n"
    assert cli("rollback", "adder@2", "--to", 1, "--reason", "slow").stdout == (
        "adder@2 is withdrawn; latest is 1 (slow)\n"
    )
    assert cli("alias", "adder", "stable", 1).stdout == "adder@stable is 1\n"
    assert cli("alias", "adder@3", "stable").stdout == "adder@stable is 3, before 1\n"
    assert cli("alias", "adder", 1, "stable").stdout == "adder@stable is 1, before 3\n"
    assert cli("rollout", "adder", 3, "--share", "50%").stdout.startswith("adder@latest is 3 for 50%")
    assert cli("withdraw", "adder@2").stderr == "policybridge policies: adder@3 is being rolled out, and not 2\n"
    assert cli("withdraw", "adder", 3).stdout == "adder@3 is withdrawn; latest is 1\n"
    assert cli("show", "adder@3").stdout.splitlines()[-1].startswith("3 ")
    assert cli("download", "adder", 3, tmp_path / "3").stdout.startswith("adder@3 sha256:")
    assert cli("retire", "adder@3").stdout == "adder@3 is retired\n"
    assert cli("retire", "adder", 2).stdout == "adder@2 is retired\n"
    assert "the number of the version is missing" in cli("retire", "adder").stderr
    assert "and not both" in cli("retire", "adder@1", 1).stderr


def test_the_files_of_a_version_are_downloaded_whole_or_not_at_all(
    served: tuple[RunningServer, Client], policies: Path, tmp_path: Path
) -> None:
    _, made = served
    target = tmp_path / "down" / "files"
    version = made.repository.download(PolicyReference.parse("adder@2"), target)
    assert (version.version, digest(target)) == (2, digest(policies / "adder" / "2"))
    with pytest.raises(InvalidError, match="exists already"):
        made.repository.download(PolicyReference.parse("adder"), target)
    with pytest.raises(NotFoundError, match="there is no adder@9"):
        made.repository.download(PolicyReference.parse("adder@9"), tmp_path / "other")
    with pytest.raises(InvalidError, match="means 3 versions; give more digits"):
        made.repository.download(PolicyReference.parse("adder@sha256:"), tmp_path / "other")
    assert list((tmp_path / "down").iterdir()) == [target]


@pytest.mark.parametrize("path", ["../outside", "/tmp/outside", "a/../../outside", ""])
def test_a_server_cannot_make_a_download_write_outside_of_its_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidError, match="leads out"):
        receive_files([FileChunk(path="a", data=b"1"), FileChunk(path=path, data=b"2")], tmp_path / "in" / "files", 2)
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("size", [1, 3])
def test_a_download_of_another_size_than_the_version_leaves_nothing(tmp_path: Path, size: int) -> None:
    pieces = [FileChunk(path="a", data=b"1"), FileChunk(path="a", data=b"2")]
    with pytest.raises(InvalidError, match=f"{size} bytes"):
        receive_files(pieces, tmp_path / "in" / "files", size)
    assert list((tmp_path / "in").iterdir()) == []


def test_a_server_cannot_make_a_download_write_files_without_end(tmp_path: Path) -> None:
    endless = (FileChunk(path=f"{number}") for number in count())
    with pytest.raises(InvalidError, match="too many files"):
        receive_files(endless, tmp_path / "in" / "files", 1)
    assert list((tmp_path / "in").iterdir()) == []
