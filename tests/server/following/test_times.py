"""For how long a leader remembers its replicas, and when a server tries again."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Thread

from policybridge_core.text import PeerText
from policybridge_server.following.remote import RemoteSource
from policybridge_server.following.replicas import Replicas, View, WaitFor
from policybridge_server.following.state import Lack
from policybridge_server.repository import Repository
from policybridge_server.repository.remote import RemoteRepository
from tests.server.following.replicas import serving
from tests.server.publishing.policies import TOML, wait_for, write_adder


class Clock:
    """Stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def alone() -> Sequence[View]:
    return []


def known(replicas: Replicas) -> list[str]:
    """Give the replicas that count now."""
    found = asyncio.run(replicas.wait(WaitFor.NONE, 0)).replicas
    return [replica.name for replica, _ in found]


def test_a_replica_counts_until_it_has_been_away_for_ten_minutes(tmp_path: Path) -> None:
    clock = Clock()
    replicas = Replicas(Repository([tmp_path]), alone, clock)
    with replicas.joined(PeerText("1"), PeerText("here")):
        with replicas.joined(PeerText("2"), PeerText("away")):
            clock.now += 10_000
            assert known(replicas) == ["away", "here"], "one that is connected counts, however long"
        clock.now += 599
        assert known(replicas) == ["away", "here"]
        clock.now += 2
        assert known(replicas) == ["here"]


def test_a_version_that_did_not_pass_is_tried_again_after_30_seconds(tmp_path: Path) -> None:
    def add(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "1.json").write_text("{}")
        (folder / "policy.toml").write_text(TOML)

    clock = Clock()
    source = RemoteSource(RemoteRepository(f"file://{tmp_path}"), 0.01, may_be_new=True, clock=clock)
    changes = source.changes()
    add("torn")
    assert [policy.name for policy in next(changes).policies] == ["torn"]
    source.adopted(1, [Lack(PeerText("torn"), 1, PeerText("a file is missing"), passing=True)])
    clock.now += 29
    # Another policy ends the wait for a change.
    add("other")
    assert [policy.name for policy in next(changes).policies] == ["other"]
    clock.now += 2
    assert [policy.name for policy in next(changes).policies] == ["torn"]
    source.close()


def test_of_two_servers_that_set_one_alias_the_last_one_wins_at_both(tmp_path: Path) -> None:
    address = f"file://{tmp_path / 'shared'}"
    (tmp_path / "shared").mkdir()
    with ExitStack() as stack:
        both = [
            stack.enter_context(serving(tmp_path / name, "--repository", address, "--poll", 0.1, "--allow-publish"))[0]
            for name in ("a", "b")
        ]
        for number in (1, 2):
            both[0].repository.publish("adder", write_adder(tmp_path / str(number), number * 100), config=TOML)
        wait_for(lambda: [each.name for each in both[1].repository.policies()] == ["adder"])
        wait_for(lambda: len(both[1].repository.show("adder").versions) == 2)
        start = Barrier(2)

        def set_alias(server: int) -> None:
            start.wait()
            both[server].repository.set_alias("adder", "stable", server + 1)

        threads = [Thread(target=set_alias, args=(server,)) for server in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        def is_same() -> bool:
            return both[0].ask("adder@stable") == both[1].ask("adder@stable")

        wait_for(is_same)
        both[0].repository.set_alias("adder", "stable", 1)
        both[1].repository.set_alias("adder", "stable", 2)
        wait_for(lambda: [each.ask("adder@stable")[1] for each in both] == [200, 200])
