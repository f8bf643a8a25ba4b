"""A publisher in one process, beside other processes of the server that the tests see and steer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_core.digest import digest
from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyVersion
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.loop import Loop
from policybridge_server.publishing.peers import Alone
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository, StoredPolicy, StoredVersion
from tests.server.publishing.policies import write_adder


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


class Silent:
    """A client that asks nothing."""

    def answer(self, advice: object, log_probability: float | None) -> None: ...

    def fail(self, error: object) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until ``condition`` holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)
