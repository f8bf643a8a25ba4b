"""A repository at an address of fsspec: S3 and Google's by their real protocols, and a folder that servers share."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import PreconditionError, UnavailableError
from policybridge_serdes import PolicyReference
from policybridge_server.repository.remote import ALIASES, RemoteRepository
from tests.conftest import command
from tests.server.following.buckets import BUCKETS, Bucket
from tests.server.following.replicas import serving
from tests.server.publishing.policies import TOML, Client, identity, wait_for, without_progress, write_adder


@pytest.fixture(scope="module", params=BUCKETS)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    with BUCKETS[request.param]() as bucket:
        yield bucket


@pytest.fixture(scope="module")
def both(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Give a server that publishes into the bucket, and one that looks at it."""
    folder = tmp_path_factory.mktemp("pb")
    with (
        serving(folder / "a", "--repository", bucket.address, "--poll", 0.1, "--allow-publish") as (publisher, _),
        serving(folder / "b", "--repository", bucket.address, "--poll", 0.1) as (reader, _),
    ):
        yield publisher, reader


def test_what_is_published_into_a_bucket_is_served_by_all_its_servers(
    bucket: Bucket, both: tuple[Client, Client], tmp_path: Path
) -> None:
    publisher, reader = both
    first, second = (write_adder(tmp_path / str(number), number) for number in (100, 200))
    version = publisher.repository.publish("adder", first, config=TOML, aliases=["stable"])
    wait_for(lambda: "adder" in [each.name for each in reader.repository.policies()])
    wait_for(lambda: reader.ask() == (version, 100))
    # The alias comes behind its version.
    wait_for(lambda: "stable" in reader.repository.show("adder").aliases)
    assert reader.ask("adder@stable")[1] == 100
    session = reader.open()
    newer = publisher.repository.publish("adder", second)
    wait_for(lambda: reader.ask() == (newer, 200))
    assert session.policy == version
    session.close()
    publisher.repository.set_alias("adder", "stable", 2)
    wait_for(lambda: reader.ask("adder@stable")[1] == 200)
    publisher.repository.set_alias("adder", "old", 1)
    rollout = publisher.repository.roll_out(PolicyReference("adder", 1), 0.5, alias="stable")
    wait_for(lambda: without_progress(reader.repository.show("adder").rollout) == without_progress(rollout))
    publisher.repository.end_rollout("adder", promote=False)
    publisher.repository.set_alias("adder", "old", 2)
    publisher.repository.retire("adder", 1)
    wait_for(lambda: [each.version for each in reader.repository.show("adder").versions] == [2])
    assert not [key for key in bucket.stored() if key.startswith("adder/1")]


def test_a_torn_upload_is_never_served(bucket: Bucket, both: tuple[Client, Client], tmp_path: Path) -> None:
    publisher, reader = both
    publisher.repository.publish("torn", write_adder(tmp_path / "1", 1), config=TOML)
    wait_for(lambda: "torn" in [each.name for each in reader.repository.policies()])
    model = (write_adder(tmp_path / "2", 2) / "model.onnx").read_bytes()
    manifest = json.loads(bucket.get("torn/1.json"))
    good = json.loads(bucket.get("torn/1.json"))
    # The files without a manifest; then a manifest whose files are cut off, missing, or others of the same length.
    bucket.put("torn/2-aaaa/model.onnx", model)
    manifest["folder"] = "3-bbbb"
    bucket.put("torn/3-bbbb/model.onnx", bucket.get(f"torn/{good['folder']}/model.onnx")[:-7])
    bucket.put("torn/3.json", json.dumps(manifest).encode())
    bucket.put("torn/4.json", json.dumps({**manifest, "folder": "4-cccc"}).encode())
    bucket.put("torn/5-dddd/model.onnx", bytes(good["files"]["model.onnx"]["size"]))
    bucket.put("torn/5.json", json.dumps({**manifest, "folder": "5-dddd"}).encode())
    bucket.put("torn/6.json", b'{"digest": "sha')
    bucket.put("torn/7.json", json.dumps({**manifest, "folder": f"../adder/{good['folder']}"}).encode())
    # What comes after them is served.
    publisher.repository.set_alias("torn", "seen", 1)
    wait_for(lambda: reader.repository.show("torn").aliases == {"seen": 1})
    assert [each.version for each in reader.repository.show("torn").versions] == [1]
    assert reader.ask("torn")[1] == 1
    # The upload is done after all.
    bucket.put("torn/2.json", json.dumps(_manifest(tmp_path / "2", "2-aaaa", identity(tmp_path / "2"))).encode())
    wait_for(lambda: reader.ask("torn")[1] == 2)


def test_of_two_that_publish_the_same_number_into_a_bucket_the_first_has_it(bucket: Bucket, tmp_path: Path) -> None:
    repository = RemoteRepository(bucket.address)
    first, second = (write_adder(tmp_path / name / "raced" / "1", number) for name, number in (("a", 1), ("b", 2)))
    repository.push(first, identity(first), TOML)
    with pytest.raises(PreconditionError, match="publish again"):
        repository.push(second, identity(second), TOML)
    assert repository.manifest("raced", 1).digest == identity(first)


def _manifest(folder: Path, where: str, digest: str) -> dict[str, object]:
    text = subprocess.run(["sha256sum", folder / "model.onnx"], capture_output=True, text=True, check=True).stdout
    files = {"model.onnx": {"size": (folder / "model.onnx").stat().st_size, "sha256": text.split()[0]}}
    return {"digest": digest, "folder": where, "files": files}


def test_what_cannot_be_uploaded_is_not_published_and_the_copy_is_served_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ["--repository", f"file://{store}", "--poll", 0.1, "--allow-publish"]
    with serving(tmp_path / "a", *arguments) as (publisher, _):
        publisher.repository.publish("adder", write_adder(tmp_path / "1", 100), config=TOML)
        (store / "adder").rename(tmp_path / "aside")
        (store / "adder").write_text("in the way")
        with pytest.raises(UnavailableError, match="store"):
            publisher.repository.publish("adder", write_adder(tmp_path / "2", 200))
        assert publisher.ask()[1] == 100
        (store / "adder").unlink()
        (tmp_path / "aside").rename(store / "adder")
        assert publisher.repository.publish("adder", tmp_path / "2").version == 2
        store.rename(tmp_path / "away")
    with serving(tmp_path / "a", *arguments[:-1]) as (reader, _):
        assert reader.ask()[1] == 200


def test_a_version_whose_alias_cannot_be_written_is_taken_out_of_the_repository_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ["--repository", f"file://{store}", "--poll", 0.1, "--allow-publish"]
    with serving(tmp_path / "a", *arguments) as (publisher, _):
        publisher.repository.publish("adder", write_adder(tmp_path / "1", 100), config=TOML)
        in_the_way = store / "adder" / ALIASES / "a folder"
        in_the_way.mkdir(parents=True)
        with pytest.raises(UnavailableError):
            publisher.repository.publish("adder", write_adder(tmp_path / "2", 200), aliases=["stable"])
        assert [path.name for path in (store / "adder").iterdir() if path.name.startswith("2")] == []
        assert publisher.ask()[1] == 100


def test_an_address_of_an_unknown_kind_and_a_copy_in_use_end_the_start_with_a_reason(tmp_path: Path) -> None:
    def start(*arguments: object) -> str:
        serve = command("serve", "--socket", tmp_path / "t", "--cache", tmp_path / "a" / "cache", *arguments)
        ended = subprocess.run(serve, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        return ended.stderr

    assert "--repository odd://place/x" in start("--repository", "odd://place/x")
    arguments = ["--repository", f"file://{tmp_path}/store"]
    with serving(tmp_path / "a", *arguments):
        assert "each server keeps copies of its own: name another --cache" in start(*arguments)
