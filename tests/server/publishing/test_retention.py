"""How long versions stay: in memory, on the disk, under their names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError, PreconditionError
from tests.conftest import ServerFactory
from tests.server.publishing.policies import Client, ask, client, wait_for, write_adder


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[Client]:
    with client(server_factory(policies, "--allow-publish", "--keep-versions", "2")) as made:
        yield made


def numbers(policies: Path) -> set[str]:
    return {path.name for path in (policies / "adder").iterdir() if path.name.isdecimal()}


def loaded(server: Client) -> dict[int, int]:
    """Give the sessions of each loaded version."""
    return {each.version: each.sessions for each in server.repository.show("adder").versions if each.loaded}


def publish(server: Client, tmp_path: Path, *versions: int) -> None:
    for version in versions:
        assert server.repository.publish("adder", write_adder(tmp_path / str(version), version)).version == version


def test_the_last_versions_and_the_named_ones_stay(server: Client, policies: Path, tmp_path: Path) -> None:
    server.repository.set_alias("adder", "first", 1)
    publish(server, tmp_path, 2, 3, 4, 5)
    wait_for(lambda: numbers(policies) == {"1", "4", "5"})
    with pytest.raises(NotFoundError, match="no version 3 of policy 'adder'; there are 1, 4, 5"):
        server.open("adder@3")
    assert server.ask("adder@first")[1] == 100


def test_a_version_is_unloaded_when_its_last_session_ends(server: Client, tmp_path: Path) -> None:
    one, other = server.open(), server.open()
    publish(server, tmp_path, 2)
    assert loaded(server) == {1: 2, 2: 0}
    one.close()
    wait_for(lambda: loaded(server) == {1: 1, 2: 0})
    assert ask(other) == 100
    other.close()
    wait_for(lambda: loaded(server) == {2: 0})
    assert server.ask("adder@1")[1] == 100


def test_a_version_on_its_way_out_is_served_to_the_end_of_its_last_session(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    session = server.open()
    publish(server, tmp_path, 2, 3, 4)
    assert numbers(policies) >= {"1", "3", "4"}
    assert [ask(session, value) for value in (1, 2, 3)] == [100, 100, 100]
    with pytest.raises(NotFoundError):
        server.open("adder@1")
    session.close()
    wait_for(lambda: numbers(policies) == {"3", "4"})


def test_retire_refuses_what_an_alias_names(server: Client, policies: Path, tmp_path: Path) -> None:
    publish(server, tmp_path, 2)
    server.repository.set_alias("adder", "stable", 1)
    with pytest.raises(PreconditionError, match="adder@1 is stable; let these name another version first"):
        server.repository.retire("adder", 1)
    with pytest.raises(PreconditionError, match="adder@2 is latest"):
        server.repository.retire("adder", 2)
    with pytest.raises(NotFoundError, match="no version 7"):
        server.repository.retire("adder", 7)
    server.repository.set_alias("adder", "stable", 2)
    server.repository.retire("adder", 1)
    wait_for(lambda: numbers(policies) == {"2"})


def test_a_retired_version_with_a_session_does_not_come_back_after_a_crash(
    policies: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    first = server_factory(policies, "--allow-publish")
    with client(first) as server:
        session = server.open()
        publish(server, tmp_path, 2)
        server.repository.retire("adder", 1)
        assert (ask(session), numbers(policies)) == (100, {"1", "2"})
        first.kill()
    with client(server_factory(policies)) as server, pytest.raises(NotFoundError):
        server.open("adder@1")
    with client(server_factory(policies, "--allow-publish")) as server:
        assert (server.ask()[1], numbers(policies)) == (2, {"2"})


def test_old_versions_stay_where_the_server_may_not_publish(policies: Path, server_factory: ServerFactory) -> None:
    for version in range(2, 6):
        write_adder(policies / "adder" / str(version), version)
    with client(server_factory(policies, "--keep-versions", "1")) as server:
        assert server.ask()[1] == 5
    assert len(numbers(policies)) == 5


def test_nothing_is_deleted_unless_the_operator_says_how_many_versions_to_keep(
    policies: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    for version in range(2, 11):
        write_adder(policies / "adder" / str(version), version)
    with client(server_factory(policies, "--allow-publish")) as server:
        publish(server, tmp_path, 11, 12)
        assert {each.version for each in server.repository.show("adder").versions} == set(range(1, 13))
    assert numbers(policies) == {str(version) for version in range(1, 13)}


def test_each_deletion_is_logged(
    policies: Path, server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with client(server_factory(policies, "--allow-publish", "--keep-versions", "2")) as server:
        publish(server, tmp_path, 2, 3)
        wait_for(lambda: numbers(policies) == {"2", "3"})
    logged = capfd.readouterr().err
    assert [line.partition(" ")[2] for line in logged.splitlines() if "is deleted" in line] == [
        f"WARNING {policies / 'adder' / '1'} is deleted: the version is retired, and no session is on it"
    ]
