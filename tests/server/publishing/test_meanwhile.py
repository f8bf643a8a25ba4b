"""A policy's folder that was found, and that a publication makes or undoes before it is added."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing
from pathlib import Path

from policybridge_core.digest import digest
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository
from tests.server.publishing.policies import TOML, write_adder, write_policy


async def _files(version: Path) -> AsyncIterator[tuple[str, bytes]]:
    for file in version.iterdir():
        yield file.name, file.read_bytes()


def _served(folder: Path, meanwhile: Callable[[Publisher], Coroutine[None, None, None]]) -> dict[str, list[int]]:
    """Do something with the publisher of a repository; give the versions of each policy then."""
    repository = Repository([folder])
    engine = Engine(repository, allow_python=False)

    async def run() -> None:
        engine.attach(asyncio.get_running_loop())
        publisher = Publisher(SessionOpener(engine), allowed=True, keep_versions=None)
        with closing(publisher):
            await meanwhile(publisher)

    with closing(engine), asyncio.Runner(loop_factory=lambda: Loop(engine.flush, 0.0)) as runner:
        runner.run(run())
    return {name: list(repository.policy(name).versions) for name in repository.policies()}


def test_a_policy_that_is_published_keeps_its_versions_where_its_folder_is_found_by_chance(tmp_path: Path) -> None:
    made = write_adder(tmp_path / "made", 100)
    (tmp_path / "policies").mkdir()

    async def publish_and_find(publisher: Publisher) -> None:
        await publisher.publish("new", TOML, _files(made), digest(made))
        await publisher.add_policy(tmp_path / "policies" / "new")

    assert _served(tmp_path / "policies", publish_and_find) == {"new": [1]}


def test_a_folder_that_is_gone_again_is_no_policy(tmp_path: Path) -> None:
    assert _served(tmp_path, lambda publisher: publisher.add_policy(tmp_path / "gone")) == {}


def test_a_folder_that_is_found_is_a_policy(tmp_path: Path) -> None:
    async def copy_and_find(publisher: Publisher) -> None:
        write_policy(tmp_path, "copied")
        await publisher.add_policy(tmp_path / "copied")

    assert _served(tmp_path, copy_and_find) == {"copied": []}
