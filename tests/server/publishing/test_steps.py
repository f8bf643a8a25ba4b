"""The publisher in one process, beside other processes of the server that the tests see and steer."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from policybridge_core.digest import digest
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.loop import Loop
from policybridge_server.publishing.peers import Alone
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.publishing.rollouts import Back, Wanted
from policybridge_server.repository import Repository, StoredPolicy, StoredVersion
from policybridge_server.repository.aliases import read_aliases, write_aliases
from policybridge_server.repository.numbers import read_numbers
from policybridge_server.repository.retired import mark_retired
from policybridge_server.repository.rollout import read_rollout
from tests.server.publishing.policies import SIGNATURE, TOML, write_adder, write_policy


class Others(Alone):
    """Other processes: they tell what they took, refuse what the tests say, and leave a version when the tests say."""

    def __init__(self) -> None:
        self.taken: list[StoredPolicy] = []
        self.refuses = False
        self.leaving: list[Callable[[], None]] = []

    async def prepare(self, version: StoredVersion, *, published: bool) -> None:
        if self.refuses:
            raise PreconditionError(f"another process cannot load {version}")

    async def take(self, policy: StoredPolicy) -> None:
        self.taken.append(policy)

    def when_left(self, folder: Path, call: Callable[[], None]) -> None:
        self.leaving.append(call)


@dataclass
class Server:
    """A repository whose policy ``adder`` has the versions 1 and 2, and its publisher."""

    folder: Path
    publisher: Publisher
    engine: Engine
    others: Others
    made: Path = field(init=False)

    def __post_init__(self) -> None:
        self.made = self.folder.parent / "made"

    @property
    def policy(self) -> StoredPolicy:
        return self.engine.repository.policy("adder")

    async def publish(
        self, number: int, name: str = "adder", toml: str = "", aliases: Sequence[str] = (), adopted: int | None = None
    ) -> PolicyVersion:
        return await self.publish_files(write_adder(self.made / str(number), number), name, toml, aliases, adopted)

    async def publish_files(
        self, folder: Path, name: str = "adder", toml: str = "", aliases: Sequence[str] = (), adopted: int | None = None
    ) -> PolicyVersion:
        async def files() -> AsyncIterator[tuple[str, bytes]]:
            for file in folder.iterdir():
                yield file.name, file.read_bytes()

        return await self.publisher.publish(name, toml, files(), digest(folder), aliases, adopted=adopted)

    async def on_disk(self) -> list[str]:
        """Give the numbers of the folders of versions, when the work on the disk that was begun is done."""
        await asyncio.get_running_loop().run_in_executor(self.publisher.retention._disk, lambda: None)
        return sorted(each.name for each in (self.folder / "adder").iterdir() if each.name.isdecimal())


Steps = Callable[[Server], Coroutine[None, None, None]]


def serve(
    folder: Path, steps: Steps, *, allowed: bool = True, keep: int | None = None, leader: str | None = None
) -> None:
    engine = Engine(Repository([folder]), allow_python=False)

    async def run() -> None:
        engine.attach(asyncio.get_running_loop())
        others = Others()
        opener = SessionOpener(engine)
        publisher = Publisher(opener, allowed=allowed, keep_versions=keep, leader=leader, peers=others)
        with closing(publisher):
            await steps(Server(folder, publisher, engine, others))

    with closing(engine), asyncio.Runner(loop_factory=lambda: Loop(engine.flush, 0.0)) as runner:
        runner.run(run())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_adder(write_policy(tmp_path / "policies") / "2", 200)
    return tmp_path / "policies"


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


def test_a_version_that_another_process_cannot_load_is_undone_whole(folder: Path) -> None:
    async def steps(server: Server) -> None:
        server.others.refuses = True
        for aliases in ([], ["stable"]):
            with pytest.raises(PreconditionError, match="another process cannot load adder@3"):
                await server.publish(300, aliases=aliases)
        assert (await server.on_disk(), read_aliases(folder / "adder")) == (["1", "2"], {})
        assert (server.policy.latest, server.policy.aliases, server.others.taken) == (2, {}, [])
        assert server.engine.counters.publications == {"published": 0, "refused": 2}
        for step in (
            server.publisher.set_alias("adder", "stable", 1),
            server.publisher.rollouts.begin("adder", Wanted(2, 0.5)),
            server.publisher.rollouts.roll_back("adder", Back()),
        ):
            with pytest.raises(PreconditionError, match="another process cannot load"):
                await step
        assert (server.policy.aliases, server.policy.rollout) == ({}, None)
        server.others.refuses = False
        assert (await server.publish(300)).version == 3

    serve(folder, steps)


def test_a_version_that_clients_of_the_one_before_could_not_use_is_undone(folder: Path) -> None:
    async def steps(server: Server) -> None:
        with pytest.raises(PreconditionError, match=r"clients of adder@2 .*could not go on with adder@3"):
            await server.publish_files(write_adder(server.made / "more", 300, ["x", "y"]))
        assert (await server.on_disk(), server.policy.latest) == (["1", "2"], 2)
        session = server.engine.open(server.engine.load(PolicyReference("adder")), SessionOptions(), _Silent())
        session.bind(SIGNATURE)
        assert (await server.publish(300)).version == 3
        assert session.loaded.stored.policy.version == 2

    serve(folder, steps)


def test_a_new_policy_comes_with_its_toml_and_a_known_one_keeps_its_own(folder: Path) -> None:
    async def steps(server: Server) -> None:
        with pytest.raises(NotFoundError, match="no policy 'new'; the first version of one comes with"):
            await server.publish(1, "new")
        assert (await server.publish(1, "new", TOML)).version == 1
        assert (await server.publish(2, "new", TOML)).version == 2
        with pytest.raises(PreconditionError, match=r"has another policy\.toml, which all its versions share"):
            await server.publish(3, "new", f"{TOML}inline = true\n")
        with pytest.raises(InvalidError, match="is no name of a policy"):
            await server.publish(1, "-", TOML)
        assert server.engine.repository.policy("new").latest == 2

    serve(folder, steps)


def test_an_alias_names_the_version_that_it_is_given_and_tells_the_one_before(folder: Path) -> None:
    async def steps(server: Server) -> None:
        assert await server.publisher.set_alias("adder", "stable", 1) is None
        assert await server.publisher.set_alias("adder", "stable", 2) == 1
        assert (server.policy.aliases, read_aliases(folder / "adder")) == ({"stable": 2}, {"stable": 2})
        assert [policy.aliases for policy in server.others.taken] == [{"stable": 1}, {"stable": 2}]
        with pytest.raises(NotFoundError):
            await server.publisher.set_alias("adder", "stable", 9)
        with pytest.raises(InvalidError, match="names the newest version by itself"):
            await server.publisher.set_alias("adder", "latest", 1)
        await server.publisher.rollouts.begin("adder", Wanted(1, 0.5, "stable"))
        with pytest.raises(PreconditionError, match="is being rolled out to stable"):
            await server.publisher.set_alias("adder", "stable", 1)
        with pytest.raises(PreconditionError, match="is being rolled out to stable"):
            await server.publish(300, aliases=["stable"])
        await server.publisher.set_alias("adder", "other", 1)

    serve(folder, steps)


def test_a_retired_version_is_removed_when_all_processes_have_left_it_and_its_number_stays_given(folder: Path) -> None:
    async def steps(server: Server) -> None:
        await server.publisher.begin_epochs()
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
        numbers = read_numbers(folder / "adder")
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
        session = server.engine.open(server.engine.load(PolicyReference("adder", 1)), SessionOptions(), _Silent())
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


class _Silent:
    """A client that asks nothing."""

    def answer(self, advice: object, log_probability: float | None) -> None: ...

    def fail(self, error: object) -> None: ...


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
        assert read_rollout(folder / "adder") == server.policy.rollout == server.others.taken[-1].rollout == begun
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
        assert read_rollout(folder / "adder") == ended
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


@pytest.mark.parametrize(
    ("leader", "told"),
    [(None, "its operator allows them with --allow-publish"), ("grpc:leader:1", "its leader does: grpc:leader:1")],
)
def test_a_server_that_takes_no_changes_refuses_each_and_writes_nothing(
    folder: Path, leader: str | None, told: str
) -> None:
    before = sorted(folder.rglob("*"))

    async def steps(server: Server) -> None:
        publisher = server.publisher
        assert publisher.is_replica == (leader is not None)
        await publisher.begin_epochs()
        for step in (
            server.publish(300),
            publisher.set_alias("adder", "stable", 1),
            publisher.retire("adder", 1),
            publisher.rollouts.begin("adder", Wanted(2, 0.5)),
            publisher.rollouts.end("adder", "promoted"),
            publisher.rollouts.compared("adder", ""),
            publisher.rollouts.roll_back("adder", Back()),
        ):
            with pytest.raises(PreconditionError, match=told):
                await step

    serve(folder, steps, allowed=False, leader=leader)
    assert sorted(folder.rglob("*")) == before


def test_a_repository_that_is_a_copy_of_one_begins_another_epoch(folder: Path, tmp_path: Path) -> None:
    async def begin(server: Server) -> None:
        await server.publisher.begin_epochs()
        assert server.policy.numbers == read_numbers(server.folder / "adder")

    serve(folder, begin)
    first = read_numbers(folder / "adder")
    serve(folder, begin)
    assert read_numbers(folder / "adder") == first
    shutil.copytree(folder, tmp_path / "copy")
    serve(tmp_path / "copy", begin)
    second = read_numbers(tmp_path / "copy" / "adder")
    assert first is not None
    assert second is not None
    assert (second.highest, second.earlier) == (first.highest, {first.epoch: 2})


def test_a_version_that_a_replica_keeps_is_adopted_under_its_number_or_dropped(folder: Path) -> None:
    async def steps(server: Server) -> None:
        publisher = server.publisher
        await publisher.begin_epochs()
        kept = PolicyVersion("adder", 7, f"sha256:{'7' * 64}")
        lies = [
            PolicyVersion("adder", 8, "none"),
            PolicyVersion("adder", 1_000_000, kept.digest),
            PolicyVersion("adder", 0, kept.digest),
            PolicyVersion("nobody", 8, kept.digest),
            PolicyVersion("adder", 2, kept.digest),
        ]
        await publisher.heard([(each, "old") for each in lies] + [(kept, "e" * 65)])
        assert (server.policy.elsewhere, server.policy.given) == ({}, 2)
        await publisher.heard([(kept, "old"), (kept, "old")])
        assert server.policy.elsewhere == {7: ("old", kept.digest)}
        assert [policy.given for policy in server.others.taken] == [7]
        with pytest.raises(PreconditionError, match="no replica keeps a adder@6 that this server does not have"):
            await server.publish(300, adopted=6)
        with pytest.raises(InvalidError, match="and adder@7 has sha256:777"):
            await server.publish(300, adopted=7)
        assert (await server.publish(300)).version == 8
        await publisher.retire("adder", 7)
        assert server.policy.elsewhere == {}
        numbers = read_numbers(folder / "adder")
        assert numbers is not None
        assert numbers.dropped == {"old": [7]}

    serve(folder, steps)
