"""Publications and aliases, step by step: what is written, told to the other processes, and undone."""

import asyncio
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec
from policybridge_server.publishing.rollouts import Back, Wanted
from policybridge_server.publishing.watcher import FolderWatcher
from policybridge_server.repository.aliases import read_aliases
from tests.onnx_models import make_model
from tests.server.publishing.policies import SIGNATURE, TOML, write_adder
from tests.server.publishing.steps import Server, Silent, serve, until


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
        session = server.engine.open(server.engine.load(PolicyReference("adder")), SessionOptions(), Silent())
        session.bind(SIGNATURE)
        assert (await server.publish(300)).version == 3
        assert session.loaded.stored.policy.version == 2

    serve(folder, steps)


def write_sum(folder: Path, kind: int) -> Path:
    """Write a version that adds ``x``, an integer, and ``y``, of the given type."""
    nodes = [
        helper.make_node("Cast", ["y"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Add", ["x", "whole"], ["advice"]),
    ]
    used: dict[str, tuple[int, list[int | str]]] = {
        "x": (TensorProto.INT64, ["batch", 1]),
        "y": (kind, ["batch", 1]),
    }
    folder.mkdir(parents=True)
    onnx.save(make_model(nodes, used, {"advice": (TensorProto.INT64, ["batch", 1])}), folder / "model.onnx")
    return folder


def test_a_version_must_take_what_a_client_sends_beyond_what_it_has_to(folder: Path) -> None:
    write_sum(folder / "sum" / "1", TensorProto.INT64)
    (folder / "sum" / "policy.toml").write_text(f"{TOML}fill = {{y = 0}}\n")
    sending = Signature.of([*SIGNATURE.features.specs, TensorSpec("y", ElementType.INT64)], SIGNATURE.advice)

    async def steps(server: Server) -> None:
        session = server.engine.open(server.engine.load(PolicyReference("sum")), SessionOptions(), Silent())
        session.bind(sending)
        with pytest.raises(PreconditionError, match=r"clients of sum@1 .*could not go on with sum@2"):
            await server.publish_files(write_sum(server.made / "float", TensorProto.FLOAT), "sum")
        session.close()
        session = server.engine.open(server.engine.load(PolicyReference("sum")), SessionOptions(), Silent())
        session.bind(SIGNATURE)

    serve(folder, steps)


def test_a_folder_that_is_refused_is_not_tried_again_until_it_changes(folder: Path) -> None:
    async def steps(server: Server) -> None:
        watching = asyncio.create_task(FolderWatcher(server.engine.repository, server.publisher).watch())
        counts = server.engine.counters.publications
        bad = folder / "adder" / "3"
        # Made elsewhere and renamed: the watcher sees none of them half.
        (server.made / "bad").mkdir(parents=True)
        (server.made / "bad" / "model.onnx").write_text("no model")
        (server.made / "bad").rename(bad)
        await until(lambda: counts["refused"] == 1)
        write_adder(server.made / "good", 400).rename(folder / "adder" / "4")
        await until(lambda: server.policy.latest == 4)
        assert counts == {"published": 1, "refused": 1}
        (write_adder(server.made / "mended", 300) / "model.onnx").rename(bad / "model.onnx")
        await until(lambda: 3 in server.policy.versions)
        assert counts == {"published": 2, "refused": 1}
        watching.cancel()

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
        await publisher.numbering.begin(server.publisher.policies())
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
