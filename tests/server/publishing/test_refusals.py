"""What may not come into the repository, by whichever way: names, paths, links, bombs, pickles."""

import os
import pickle
import struct
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from policybridge.v1 import repository_service_pb2 as pb
from policybridge.v1.policy_service_pb2 import PolicyReference as PolicyMessage
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_serdes import PolicyReference
from tests.conftest import ServerFactory
from tests.server.publishing.policies import TOML, Client, client, write_adder, write_policy

TORCH = 'backend = "torch"\nfeatures = []\n'
_LIMITS = ("--max-artifact-bytes", 2 << 20, "--max-artifact-files", 5)


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[Client]:
    with client(server_factory(policies, "--allow-publish", *_LIMITS)) as made:
        yield made


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "a\\b", ".hidden", "", "ä", "a b", "x" * 101, "a\n", "a\0"])
def test_a_name_that_is_no_name_is_refused(server: Client, policies: Path, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="is no name of a policy"):
        server.repository.publish(name, write_adder(tmp_path / "new", 1), config=TOML)
    assert {path.name for path in policies.iterdir()} == {".lock", "adder"}


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "a\\b",
        "",
        ".",
        "..",
        "a//b",
        "a/",
        ".hidden",
        "a/.b",
        "a\0b",
        "__pycache__/x.pyc",
    ],
)
def test_a_path_that_leads_anywhere_else_is_refused(server: Client, policies: Path, path: str) -> None:
    requests = [
        pb.PublishRequest(header=pb.PublishHeader(policy="adder")),
        pb.PublishRequest(chunk=pb.FileChunk(path=path, data=b"x")),
    ]
    with pytest.raises(InvalidError, match="is no path of an artifact"):
        server.repository._call(server.repository._stub.Publish, iter(requests))
    assert {file.name for file in (policies / "adder").iterdir()} == {"1", "numbers.json", "policy.toml"}


def test_more_bytes_or_files_than_the_operator_allows_are_refused(server: Client, tmp_path: Path) -> None:
    large = write_adder(tmp_path / "large", 1)
    (large / "more.bin").write_bytes(bytes(3 << 20))
    with pytest.raises(TooLargeError, match="more than 2097152 bytes"):
        server.repository.publish("adder", large)
    many = write_adder(tmp_path / "many", 1)
    for index in range(5):
        (many / f"{index}.bin").touch()
    with pytest.raises(TooLargeError, match="more than 5 files"):
        server.repository.publish("adder", many)


def write_bomb(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(64 << 20))


def test_an_archive_that_unpacks_to_more_than_that_is_refused_before_it_is_loaded(
    server: Client, tmp_path: Path
) -> None:
    (tmp_path / "bomb").mkdir()
    write_bomb(tmp_path / "bomb" / "model.pt")
    assert (tmp_path / "bomb" / "model.pt").stat().st_size < 1 << 20
    with pytest.raises(
        TooLargeError, match=r"^the version has an archive of more than 2097152 bytes when it is unpacked"
    ):
        server.repository.publish("bomb", tmp_path / "bomb", config=TORCH)


class _Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("owned",)


def test_a_pickle_in_a_pt_is_refused_and_not_run(server: Client, policies: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "model.pt").write_bytes(pickle.dumps(_Attack()))
    (tmp_path / "zip").mkdir()
    with zipfile.ZipFile(tmp_path / "zip" / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(_Attack()))
        archive.writestr("archive/version", "3\n")
    for name in ("plain", "zip"):
        with pytest.raises(PreconditionError, match=r"model\.pt"):
            server.repository.publish("bomb", tmp_path / name, config=TORCH)
    assert not Path("owned").exists()
    assert not (policies / "bomb").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "version", "pipe", "inside"])
def test_a_version_with_a_link_or_a_device_is_never_served(
    policies: Path, server_factory: ServerFactory, tmp_path: Path, kind: str
) -> None:
    outside = write_adder(tmp_path / "outside", 666)
    version = policies / "adder" / "2"
    if kind == "version":
        version.symlink_to(outside, target_is_directory=True)
    elif kind == "folder":
        write_adder(version, 2)
        (version / "more").symlink_to(outside, target_is_directory=True)
    elif kind == "pipe":
        write_adder(version, 2)
        os.mkfifo(version / "pipe")
    else:
        version.mkdir()
        target = outside if kind == "file" else policies / "adder" / "1"
        (version / "model.onnx").symlink_to(target / "model.onnx")
    with client(server_factory(policies)) as server:
        assert server.ask()[1] == 100
        with pytest.raises(PreconditionError, match=r"is a symbolic link|is no plain file"):
            server.open("adder@2")


def test_a_policy_that_is_a_link_out_of_the_repository_is_not_served(
    policies: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_policy(tmp_path / "elsewhere", "other")
    (policies / "other").symlink_to(tmp_path / "elsewhere" / "other", target_is_directory=True)
    with client(server_factory(policies)) as server:
        assert [policy.name for policy in server.repository.policies()] == ["adder"]


def test_weights_with_a_lying_header_are_refused(server: Client) -> None:
    for data in (b"", b"{}", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"{}x"):
        with pytest.raises(InvalidError, match="not safetensors"):
            server.repository.publish_weights(PolicyReference("adder"), data)


def said_to_weights(address: str, *pieces: bytes, version: int = 1) -> str:
    """Send the pieces of weights, and no end of them; give what the server says."""
    silence = threading.Event()

    def requests() -> Iterator[pb.PublishWeightsRequest]:
        yield pb.PublishWeightsRequest(base=PolicyMessage(name="adder", version=version))
        for piece in pieces:
            yield pb.PublishWeightsRequest(safetensors=piece)
        silence.wait(60)

    with grpc.insecure_channel(address.removeprefix("grpc:")) as channel, pytest.raises(grpc.RpcError) as raised:
        RepositoryServiceStub(channel).PublishWeights(requests(), timeout=60)
    silence.set()
    return f"{raised.value.code().name} {raised.value.details()}"


def test_weights_are_not_read_where_nobody_may_publish(policies: Path, server_factory: ServerFactory) -> None:
    server = server_factory(policies)
    assert said_to_weights(server.grpc).startswith("FAILED_PRECONDITION this server takes no changes")


def test_weights_are_not_read_where_their_base_is_not_there(policies: Path, server_factory: ServerFactory) -> None:
    server = server_factory(policies, "--allow-publish")
    assert said_to_weights(server.grpc, version=9).startswith("NOT_FOUND no version 9 of policy 'adder'")


def test_weights_larger_than_allowed_are_refused_while_they_come_in_however_small_pieces(
    policies: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(policies, "--allow-publish", "--max-artifact-bytes", 3000)
    assert said_to_weights(server.grpc, *([b"x"] * 4000)) == (
        "RESOURCE_EXHAUSTED more than 3000 bytes; the operator allows no more (--max-artifact-bytes)"
    )
    assert [path.name for path in policies.glob("adder/.*")] == []
