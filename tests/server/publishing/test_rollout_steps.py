"""Roll-outs and rollbacks, step by step: the files that they write, and the version that `latest` names."""

from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_server.publishing.rollouts import Back, Wanted
from policybridge_server.repository.aliases import read_aliases
from policybridge_server.repository.rollout import ROLLOUT
from tests.server.publishing.steps import Server, serve


def test_a_roll_out_begins_changes_and_ends_on_disk_and_in_all_processes(folder: Path) -> None:
    async def steps(server: Server) -> None:
        rollouts = server.publisher.rollouts
        for wanted, told in (
            (Wanted(1, 0.5), "adder@latest is 2 already; only the newest version is rolled out to `latest`"),
            (
                Wanted(2, 0.5, promote_if=("text < 0%",)),
                "conditions compare outcomes, which this server does not record",
            ),
        ):
            with pytest.raises(PreconditionError, match=told):
                await rollouts.begin("adder", wanted)
        with pytest.raises(PreconditionError, match="no roll-out of adder runs"):
            await rollouts.end("adder", "promoted")
        begun = await rollouts.begin("adder", Wanted(2, 0.25))
        assert (begun.version, begun.base, begun.alias, begun.share, begun.state) == (2, 1, "latest", 0.25, "running")
        assert ROLLOUT.read(folder / "adder") == server.policy.rollout == server.others.taken[-1].rollout == begun
        assert server.policy.latest == 1
        compared = await rollouts.compared("adder", "close")
        assert (compared.looks, compared.reason) == (1, "close")
        changed = await rollouts.begin("adder", Wanted(2, 0.5))
        assert (changed.share, changed.looks, changed.reason, changed.begun) == (0.5, 0, "", begun.begun)
        with pytest.raises(PreconditionError, match="adder@2 is being rolled out to latest; promote or withdraw it"):
            await rollouts.begin("adder", Wanted(1, 0.5))
        with pytest.raises(PreconditionError, match="adder@2 is being rolled out, and not 1"):
            await rollouts.end("adder", "promoted", version=1)
        ended = await rollouts.end("adder", "withdrawn", "slow", version=2)
        assert (ended.state, ended.reason, server.policy.latest) == ("withdrawn", "slow", 1)
        assert ended.ended is not None
        assert ROLLOUT.read(folder / "adder") == ended
        assert (await server.publish(300)).version == 3
        assert server.policy.latest == 3

    serve(folder, steps)


def test_a_roll_out_to_an_alias_moves_it_if_it_is_promoted_and_holds_nothing_back_from_latest(folder: Path) -> None:
    async def steps(server: Server) -> None:
        rollouts = server.publisher.rollouts
        await server.publisher.set_alias("adder", "stable", 1)
        with pytest.raises(PreconditionError, match="adder@stable is 1 already"):
            await rollouts.begin("adder", Wanted(1, 0.5, "stable"))
        await rollouts.begin("adder", Wanted(2, 0.5, "stable"))
        assert (server.policy.latest, server.policy.aliases) == (2, {"stable": 1})
        await rollouts.end("adder", "withdrawn")
        assert read_aliases(folder / "adder") == {"stable": 1}
        await rollouts.begin("adder", Wanted(2, 0.5, "stable"))
        await rollouts.end("adder", "promoted")
        assert server.policy.aliases == read_aliases(folder / "adder") == {"stable": 2}

    serve(folder, steps)


def test_latest_goes_back_to_the_version_before_and_skips_those_that_were_withdrawn(folder: Path) -> None:
    async def steps(server: Server) -> None:
        rollouts = server.publisher.rollouts
        for number in (3, 4):
            await server.publish(100 * number)
        await rollouts.begin("adder", Wanted(4, 0.5))
        with pytest.raises(
            PreconditionError, match="adder@4 is being rolled out to latest: withdraw it, or say --to N"
        ):
            await rollouts.roll_back("adder", Back())
        await rollouts.end("adder", "withdrawn")
        await server.publish(500)
        with pytest.raises(PreconditionError, match="adder@latest is 5, and not 4"):
            await rollouts.roll_back("adder", Back(leaves=4))
        back = await rollouts.roll_back("adder", Back(leaves=5, reason="slow"))
        assert (back.state, back.reason, server.policy.latest) == ("withdrawn", "slow", 3)
        with pytest.raises(PreconditionError, match="adder@latest is 3 already"):
            await rollouts.roll_back("adder", Back(to=3))
        with pytest.raises(NotFoundError):
            await rollouts.roll_back("adder", Back(to=9))
        forward = await rollouts.roll_back("adder", Back(to=4))
        assert (forward.state, server.policy.latest) == ("promoted", 4)
        await rollouts.roll_back("adder", Back(to=1))
        with pytest.raises(PreconditionError, match="adder has no version before 1; --to N names one of the others"):
            await rollouts.roll_back("adder", Back())
        assert (await server.publish(600)).version == 6
        assert server.policy.latest == 6

    serve(folder, steps)
