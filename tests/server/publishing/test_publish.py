"""Publishing: who gets a new version, when, and what is refused for its artifact's sake."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from onnx import TensorProto

from policybridge.v1 import repository_service_pb2 as pb
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_server.repository import BUNDLED
from tests.conftest import ServerFactory, command, running_server
from tests.repositories import answering, write_python
from tests.server.publishing.policies import TOML, Client, ask, client, identity, wait_for, write_adder


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[Client]:
    with client(server_factory(policies, "--allow-publish")) as made:
        yield made


def test_new_sessions_get_a_published_version_and_running_ones_stay(server: Client, tmp_path: Path) -> None:
    old = server.open()
    files = write_adder(tmp_path / "new", 200)
    version = server.repository.publish("adder", files)
    assert (version.version, version.digest) == (2, identity(files))
    assert server.ask() == (version, 200)
    assert (old.policy.version, ask(old)) == (1, 100)
    assert server.ask("adder@1")[1] == 100


def test_a_corrupt_artifact_leaves_the_old_version_serving_and_nothing_behind(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    files = write_adder(tmp_path / "new", 200)
    (files / "model.onnx").write_bytes((files / "model.onnx").read_bytes()[:-20])
    with pytest.raises(PreconditionError, match=r"^adder@2 cannot be loaded: model\.onnx cannot be loaded: "):
        server.repository.publish("adder", files)
    assert server.ask()[1] == 100
    assert {path.name for path in (policies / "adder").iterdir()} == {"1", "numbers.json", "policy.toml"}
    assert server.repository.publish("adder", write_adder(tmp_path / "good", 300)).version == 2
    assert server.ask()[1] == 300


def test_a_version_that_wants_more_than_clients_send_is_refused_with_both_specs(server: Client, tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match=r"clients of adder@1 could not go on with adder@2: .*needs y: int64_t"):
        server.repository.publish("adder", write_adder(tmp_path / "more", 1, ("x", "y")))
    with pytest.raises(PreconditionError, match=r"adder@2 gives advice: float\[1\]; the client takes advice: int64_t"):
        server.repository.publish("adder", write_adder(tmp_path / "float", 1, kind=TensorProto.FLOAT))
    assert server.ask()[1] == 100


def test_a_version_may_want_less_than_the_one_before(server: Client, tmp_path: Path) -> None:
    server.repository.publish("wide", write_adder(tmp_path / "wide", 1, ("y", "x")), config=TOML)
    assert server.repository.publish("wide", write_adder(tmp_path / "narrow", 2)).version == 2
    assert server.ask("wide")[1] == 2


def test_a_new_policy_comes_with_its_policy_toml(server: Client, policies: Path, tmp_path: Path) -> None:
    files = write_adder(tmp_path / "new", 5)
    with pytest.raises(NotFoundError, match=r"no policy 'fresh'; the first version of one comes with its policy\.toml"):
        server.repository.publish("fresh", files)
    with pytest.raises(PreconditionError, match="unknown field `colour`"):
        server.repository.publish("fresh", files, config=TOML + "colour = 1\n")
    assert server.repository.publish("fresh", files, config=TOML, aliases=["stable"]).version == 1
    assert server.ask("fresh@stable")[1] == 5
    assert (policies / "fresh" / "policy.toml").read_text() == TOML
    with pytest.raises(PreconditionError, match=r"has another policy\.toml"):
        server.repository.publish("fresh", files, config=TOML + 'description = "other"\n')
    assert sorted(path.name for path in policies.iterdir() if not path.name.startswith(".lock")) == ["adder", "fresh"]


def test_a_failed_first_version_leaves_no_policy(server: Client, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "model.onnx").write_text("no model")
    with pytest.raises(PreconditionError):
        server.repository.publish("fresh", tmp_path / "bad", config=TOML)
    assert [policy.name for policy in server.repository.policies()] == ["adder"]


def test_aliases_promote_roll_back_and_outlive_the_server(policies: Path, tmp_path: Path) -> None:
    with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
        server.repository.publish("adder", write_adder(tmp_path / "2", 200), aliases=["stable", "night.ly"])
        assert server.ask("adder@stable")[1] == 200
        assert server.repository.set_alias("adder", "stable", 1) == 2
        assert server.ask("adder@stable")[1] == 100
        assert server.repository.set_alias("adder", "new", 2) is None
        with pytest.raises(NotFoundError, match="no version 7 of policy 'adder'; there are 1, 2"):
            server.repository.set_alias("adder", "stable", 7)
        for impossible in ("latest", "7", "../x", ""):
            with pytest.raises(InvalidError, match=r"latest|is no alias"):
                server.repository.set_alias("adder", impossible, 1)
    with running_server(policies, tmp_path) as running, client(running) as server:
        assert server.repository.show("adder").aliases == {"night.ly": 2, "stable": 1, "new": 2}
        assert (server.ask("adder@stable")[1], server.ask()[1]) == (100, 200)


def test_nothing_is_changed_where_the_operator_does_not_allow_it(
    policies: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    with client(server_factory(policies)) as server:
        for change in (
            lambda: server.repository.publish("adder", write_adder(tmp_path / "new", 2)),
            lambda: server.repository.set_alias("adder", "stable", 1),
            lambda: server.repository.retire("adder", 1),
        ):
            with pytest.raises(PreconditionError, match="its operator allows them with --allow-publish"):
                change()
        assert server.ask()[1] == 100


def test_python_needs_a_permission_of_its_own(policies: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "policy.py").write_text(answering("observation['x'] + 3"))
    arguments = ["--allow-publish", "--config", tmp_path / "serve.toml"]
    (tmp_path / "serve.toml").write_text("")
    with running_server(policies, tmp_path, *arguments) as running, client(running) as server:
        server.repository.publish("code", tmp_path / "code", config='backend = "python"\n')
        assert server.ask("code")[1] == 3
    with (
        running_server(policies, tmp_path, *arguments, python=False) as running,
        client(running) as server,
        pytest.raises(PreconditionError, match="the operator allows it with --allow-python"),
    ):
        server.repository.publish("more", tmp_path / "code", config='backend = "python"\n')


def test_bundled_policies_are_left_alone(policies: Path, server_factory: ServerFactory, tmp_path: Path) -> None:
    with client(server_factory(None, "--repository", policies, "--allow-publish")) as server:
        files, before = write_adder(tmp_path / "new", 1), tree(BUNDLED)
        for change in (
            lambda: server.repository.publish("inliner", files),
            lambda: server.repository.publish_weights(PolicyReference("inliner"), {}),
            lambda: server.repository.set_alias("inliner", "mine", 1),
            lambda: server.repository.retire("inliner", 1),
        ):
            with pytest.raises(PreconditionError, match="'inliner' is a part of the package"):
                change()
        server.repository.publish("mine", files, config=TOML)
        assert ((policies / "mine").is_dir(), tree(BUNDLED)) == (True, before)


def test_a_demo_alone_cannot_be_published_to(tmp_path: Path) -> None:
    serve = command("serve", "--demo", "--allow-publish", "--socket", tmp_path / "s.sock")
    refused = subprocess.run(serve, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--demo are not published into; give --repository DIR too" in refused.stderr


def tree(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}


def test_a_second_server_may_not_publish_into_the_same_repository(
    policies: Path, server_factory: ServerFactory
) -> None:
    server_factory(policies, "--allow-publish")
    with pytest.raises(AssertionError, match="the server ended with 2"):
        server_factory(policies, "--allow-publish")
    with client(server_factory(policies)) as reader:
        assert reader.ask()[1] == 100


def messages(server: Client, *requests: pb.PublishRequest) -> None:
    raw = server.repository
    raw._call(raw._stub.Publish, iter(requests))


def header(**fields: object) -> pb.PublishRequest:
    return pb.PublishRequest(header=pb.PublishHeader(**{"policy": "adder", **fields}))  # type: ignore[arg-type]


def chunk(path: str, data: bytes = b"x") -> pb.PublishRequest:
    return pb.PublishRequest(chunk=pb.FileChunk(path=path, data=data))


@pytest.mark.parametrize(
    ("requests", "error", "message"),
    [
        ([], PreconditionError, "the first message of a publication is `header`"),
        ([chunk("a")], PreconditionError, "the first message of a publication is `header`"),
        ([header()], PreconditionError, "at least one file"),
        ([header(), header()], InvalidError, "after `header` come `chunk`s"),
        ([header(), chunk("a"), chunk("b"), chunk("a")], InvalidError, "a came already"),
        ([header(), chunk("a"), chunk("a/b")], InvalidError, "a file and a folder"),
        ([header(digest="sha256:1"), chunk("a")], InvalidError, "sha256:1 was announced"),
        ([header(aliases=["latest"]), chunk("a")], InvalidError, "names the newest version by itself"),
    ],
)
def test_a_publication_out_of_order_is_refused_by_what_is_wrong(
    server: Client, policies: Path, requests: list[pb.PublishRequest], error: type[PolicyBridgeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        messages(server, *requests)
    assert {path.name for path in (policies / "adder").iterdir()} == {"1", "numbers.json", "policy.toml"}


def test_a_publisher_that_goes_away_leaves_nothing_behind(server: Client, policies: Path) -> None:
    raw: RepositoryClient = server.repository

    def some() -> Iterator[pb.PublishRequest]:
        yield header()
        yield chunk("model.onnx")
        raise OSError("the disk went away")

    with pytest.raises(PolicyBridgeError):
        raw._call(raw._stub.Publish, some())
    wait_for(lambda: {path.name for path in (policies / "adder").iterdir()} == {"1", "numbers.json", "policy.toml"})


def test_a_version_whose_alias_cannot_be_written_is_not_published(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    (policies / "adder" / "aliases.toml").mkdir()
    with pytest.raises(PreconditionError, match="the repository cannot be written: "):
        server.repository.publish("adder", write_adder(tmp_path / "new", 200), aliases=["stable"])
    assert {path.name for path in (policies / "adder").iterdir()} == {
        "1",
        "aliases.toml",
        "numbers.json",
        "policy.toml",
    }
    assert server.ask()[1] == 100


WAITING = """
from pathlib import Path
from time import sleep

Path({started!r}).touch()
while not Path({go!r}).exists():
    sleep(0.01)
"""


def test_a_publication_that_its_client_cancels_while_it_is_loaded_is_undone(policies: Path, tmp_path: Path) -> None:
    write_python(policies, "code", answering("observation['x'] + 1"))
    started, go, files = tmp_path / "started", tmp_path / "go", tmp_path / "new"
    files.mkdir()
    code = WAITING.format(started=str(started), go=str(go)) + answering("observation['x'] + 2")
    (files / "policy.py").write_text(code)
    with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
        open_files = Path(f"/proc/{running.process.pid}/fd")
        cancelled = RepositoryClient(running.grpc)
        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(cancelled.publish, "code", files, aliases=["stable"])
            wait_for(started.exists)
            before = len(list(open_files.iterdir()))
            cancelled.close()
            assert publishing.exception() is not None
        # The server has noticed when it has closed the connection.
        wait_for(lambda: len(list(open_files.iterdir())) < before)
        go.touch()
        wait_for(lambda: {path.name for path in (policies / "code").iterdir()} == {"1", "numbers.json", "policy.toml"})
        assert (server.ask("code")[1], server.repository.show("code").aliases) == (1, {})
        assert server.repository.publish("code", files, aliases=["stable"]).version == 2
        assert server.ask("code@stable")[1] == 2


def test_nothing_is_changed_of_a_policy_whose_folder_was_removed(
    server: Client, policies: Path, tmp_path: Path
) -> None:
    files = write_adder(tmp_path / "new", 200)
    (policies / "adder").rename(tmp_path / "elsewhere")
    with pytest.raises(PreconditionError, match=r"the repository cannot be written: .*No such file or directory"):
        server.repository.publish("adder", files)
    with pytest.raises(PreconditionError, match=r"the repository cannot be written: .*No such file or directory"):
        server.repository.set_alias("adder", "stable", 1)
    assert not (policies / "adder").exists()
    assert server.ask()[1] == 100
    (tmp_path / "elsewhere").rename(policies / "adder")
    assert server.repository.publish("adder", files, aliases=["stable"]).version == 2
    assert server.ask("adder@stable")[1] == 200
