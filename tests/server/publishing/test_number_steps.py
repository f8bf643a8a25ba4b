"""Retired versions, numbers and epochs, step by step: what stays, and what is never given again."""

import asyncio
import shutil
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions
from policybridge_server.publishing.rollouts import Back
from policybridge_server.repository import Repository
from policybridge_server.repository.aliases import read_aliases, write_aliases
from policybridge_server.repository.numbers import NUMBERS
from policybridge_server.repository.retired import mark_retired
from tests.server.publishing.policies import SIGNATURE, write_policy
from tests.server.publishing.steps import Server, Silent, serve


def test_a_version_gets_the_next_number_its_aliases_and_is_told_to_the_other_processes(folder: Path) -> None:
    async def steps(server: Server) -> None:
        made = await server.publish(300, aliases=["stable"])
        assert (made.version, server.policy.latest, server.policy.aliases) == (3, 3, {"stable": 3})
        assert [policy.highest for policy in server.others.taken] == [3]
        assert (await server.on_disk(), read_aliases(folder / "adder")) == (["1", "2", "3"], {"stable": 3})
        assert (await server.publish(400)).version == 4
        assert server.engine.counters.publications == {"published": 2, "refused": 0}
        policy, versions = await server.publisher.describe("adder")
        assert policy == server.policy
        assert [(each.policy.version, each.sessions, each.error) for each in versions] == [
            (number, 0, "") for number in (4, 3, 2, 1)
        ]
        assert [each.signature is not None for each in versions] == [True, True, False, False]
        assert all(each.bytes > 100 for each in versions)

    serve(folder, steps)


def test_a_retired_version_is_removed_when_all_processes_have_left_it_and_its_number_stays_given(folder: Path) -> None:
    async def steps(server: Server) -> None:
        await server.publisher.numbering.begin(server.publisher.policies())
        await server.publisher.set_alias("adder", "stable", 1)
        for number, name in ((1, "stable"), (2, "latest")):
            with pytest.raises(PreconditionError, match=f"adder@{number} is {name}; let these name another version"):
                await server.publisher.retire("adder", number)
        await server.publish(300)
        await server.publish(400, aliases=["stable"])
        await server.publisher.rollouts.roll_back("adder", Back(to=3))
        await server.publisher.set_alias("adder", "stable", 3)
        for number in (1, 4):
            await server.publisher.retire("adder", number)
        assert sorted(server.policy.versions) == [2, 3]
        assert sorted(server.others.taken[-1].versions) == [2, 3]
        assert await server.on_disk() == ["1", "2", "3", "4"]
        with pytest.raises(NotFoundError):
            await server.publisher.retire("adder", 4)
        # A crash now leaves marks, and the numbers.
        assert sorted(Repository([folder]).policy("adder").versions) == [2, 3]
        numbers = NUMBERS.read(folder / "adder")
        assert numbers is not None
        assert numbers.highest == 4
        for leave in server.others.leaving:
            leave()
        assert await server.on_disk() == ["2", "3"]
        assert (await server.publish(500)).version == 5

    serve(folder, steps)


def test_the_newest_versions_that_are_kept_do_not_count_those_with_a_name(folder: Path) -> None:
    async def steps(server: Server) -> None:
        await server.publisher.set_alias("adder", "stable", 1)
        for number in (3, 4):
            await server.publish(100 * number)
        assert sorted(server.policy.versions) == [1, 3, 4]
        for leave in server.others.leaving:
            leave()
        assert await server.on_disk() == ["1", "3", "4"]

    serve(folder, steps, keep=2)


def test_a_version_with_a_session_stays_until_it_ends(folder: Path) -> None:
    async def steps(server: Server) -> None:
        session = server.engine.open(server.engine.load(PolicyReference("adder", 1)), SessionOptions(), Silent())
        session.bind(SIGNATURE)
        await server.publisher.retire("adder", 1)
        assert server.others.leaving == []
        session.close()
        while not server.others.leaving:
            # It is unloaded after this turn of the loop.
            await asyncio.sleep(0)
        assert await server.on_disk() == ["1", "2"]
        for leave in server.others.leaving:
            leave()
        assert await server.on_disk() == ["2"]

    serve(folder, steps)


def test_changes_of_a_killed_process_are_read_from_the_disk_and_told_to_the_others(folder: Path) -> None:
    async def steps(server: Server) -> None:
        write_policy(folder, "beside")
        await server.publisher.add_policy(folder / "beside")
        server.others.taken.clear()
        await server.publisher.reread()
        assert server.others.taken == []
        write_aliases(folder / "adder", {"stable": 2})
        mark_retired(folder / "adder", [1])
        await server.publisher.reread()
        assert (server.policy.aliases, sorted(server.policy.versions)) == ({"stable": 2}, [2])
        assert [(policy.name, policy.aliases, sorted(policy.versions)) for policy in server.others.taken] == [
            ("adder", {"stable": 2}, [2])
        ]

    serve(folder, steps)


def test_a_repository_that_is_a_copy_of_one_begins_another_epoch(folder: Path, tmp_path: Path) -> None:
    async def begin(server: Server) -> None:
        await server.publisher.numbering.begin(server.publisher.policies())
        assert server.policy.numbers == NUMBERS.read(server.folder / "adder")

    serve(folder, begin)
    first = NUMBERS.read(folder / "adder")
    serve(folder, begin)
    assert NUMBERS.read(folder / "adder") == first
    shutil.copytree(folder, tmp_path / "copy")
    serve(tmp_path / "copy", begin)
    second = NUMBERS.read(tmp_path / "copy" / "adder")
    assert first is not None
    assert second is not None
    assert (second.highest, second.earlier) == (first.highest, {first.epoch: 2})


def test_a_version_that_a_replica_keeps_is_adopted_under_its_number_or_dropped(folder: Path) -> None:
    async def steps(server: Server) -> None:
        publisher = server.publisher
        await publisher.numbering.begin(server.publisher.policies())
        kept = PolicyVersion("adder", 7, f"sha256:{'7' * 64}")
        lies = [
            PolicyVersion("adder", 8, "none"),
            PolicyVersion("adder", 1_000_000, kept.digest),
            PolicyVersion("adder", 0, kept.digest),
            PolicyVersion("nobody", 8, kept.digest),
            PolicyVersion("adder", 2, kept.digest),
        ]
        await publisher.numbering.heard([(each, "old") for each in lies] + [(kept, "e" * 65)])
        assert (server.policy.elsewhere, server.policy.given) == ({}, 2)
        await publisher.numbering.heard([(kept, "old"), (kept, "old")])
        assert server.policy.elsewhere == {7: ("old", kept.digest)}
        assert [policy.given for policy in server.others.taken] == [7]
        with pytest.raises(PreconditionError, match="no replica keeps a adder@6 that this server does not have"):
            await server.publish(300, adopted=6)
        with pytest.raises(InvalidError, match="and adder@7 has sha256:777"):
            await server.publish(300, adopted=7)
        assert (await server.publish(300)).version == 8
        await publisher.retire("adder", 7)
        assert server.policy.elsewhere == {}
        numbers = NUMBERS.read(folder / "adder")
        assert numbers is not None
        assert numbers.dropped == {"old": [7]}

    serve(folder, steps)
