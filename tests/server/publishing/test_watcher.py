"""Folders that are copied or renamed into the repository while the server runs."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_server.publishing.watcher import SETTLED
from tests.conftest import ServerFactory
from tests.server.publishing.policies import TOML, Client, ask, client, wait_for, write_adder

pytest.importorskip("watchfiles")


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[Client]:
    with client(server_factory(policies)) as made:
        yield made


def test_a_folder_that_is_copied_in_is_served_once_it_is_complete(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    session = server.open()
    shutil.copytree(write_adder(tmp_path / "new", 200), policies / "adder" / "2")
    wait_for(lambda: server.ask()[1] == 200)
    assert ask(session) == 100


def test_a_server_that_takes_no_changes_writes_nothing_into_its_repository(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    shutil.copytree(write_adder(tmp_path / "new", 200), policies / "adder" / "2")
    wait_for(lambda: server.ask()[1] == 200)
    assert sorted(path.name for path in (policies / "adder").iterdir()) == ["1", "2", "policy.toml"]


def test_a_slow_copy_is_left_alone_until_nothing_changes_any_more(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    content = (write_adder(tmp_path / "new", 200) / "model.onnx").read_bytes()
    (policies / "adder" / "2").mkdir()
    started = time.monotonic()
    with (policies / "adder" / "2" / "model.onnx").open("wb", buffering=0) as file:
        for start in range(0, len(content), len(content) // 8):
            file.write(content[start : start + len(content) // 8])
            time.sleep(SETTLED / 4)
            assert server.repository.show("adder").versions[0].version == 1
    wait_for(lambda: server.ask()[1] == 200)
    assert time.monotonic() - started > 2 * SETTLED


def test_what_was_complete_before_it_is_renamed_into_place_is_taken_at_once(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    # The quickest of several: a busy machine delays any one of them.
    numbers = range(2, 10)
    for number in numbers:
        write_adder(tmp_path / str(number), 100 * number)
    time.sleep(SETTLED + 0.1)

    def seconds(number: int) -> float:
        started = time.monotonic()
        (tmp_path / str(number)).rename(policies / "adder" / str(number))
        wait_for(lambda: server.ask()[1] == 100 * number)
        return time.monotonic() - started

    assert any(seconds(number) < SETTLED for number in numbers)


def test_a_bad_folder_is_refused_with_the_reason_and_taken_when_it_is_mended(server: Client, policies: Path) -> None:
    (policies / "adder" / "2").mkdir()
    (policies / "adder" / "2" / "model.onnx").write_text("no model")
    wait_for(lambda: server.repository.show("adder").versions[0].error != "")
    assert server.ask()[1] == 100
    with pytest.raises(PreconditionError, match=r"model\.onnx cannot be loaded"):
        server.open("adder@2")
    write_adder(policies / "adder" / "2", 200)
    wait_for(lambda: server.ask()[1] == 200)


def test_a_bad_folder_is_not_served_after_a_restart_either(policies: Path, server_factory: ServerFactory) -> None:
    (policies / "adder" / "2").mkdir()
    (policies / "adder" / "2" / "model.onnx").write_text("no model")
    with client(server_factory(policies)) as server:
        assert server.ask()[1] == 100


def test_a_folder_that_wants_more_than_clients_send_is_refused(server: Client, policies: Path) -> None:
    write_adder(policies / "adder" / "2", 200, ("x", "y"))
    wait_for(lambda: "could not go on with adder@2" in server.repository.show("adder").versions[0].error)
    assert server.ask()[1] == 100


def test_a_new_policy_is_noticed_too(server: Client, policies: Path) -> None:
    with pytest.raises(NotFoundError):
        server.open("fresh")
    write_adder(policies / "fresh" / "3", 7)
    (policies / "fresh" / "policy.toml").write_text(TOML)
    wait_for(lambda: any(policy.latest == 3 for policy in server.repository.policies() if policy.name == "fresh"))
    assert server.ask("fresh")[1] == 7


def test_an_older_number_is_added_and_does_not_become_the_latest(server: Client, policies: Path) -> None:
    write_adder(policies / "adder" / "9", 9)
    wait_for(lambda: server.ask()[1] == 9)
    write_adder(policies / "adder" / "5", 5)
    wait_for(lambda: [each.version for each in server.repository.show("adder").versions] == [9, 5, 1])
    assert (server.ask()[1], server.ask("adder@5")[1]) == (9, 5)


def test_a_policy_without_a_policy_toml_is_served_when_it_is_copied_in(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    version = write_adder(tmp_path / "new", 300)
    shutil.copytree(version, policies / "bare" / "1")
    (policies / "notes" / "1").mkdir(parents=True)
    wait_for(lambda: any(policy.latest == 1 for policy in server.repository.policies() if policy.name == "bare"))
    assert server.ask("bare")[1] == 300
