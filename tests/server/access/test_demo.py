"""Bundled Python policies are trusted by where they lie; what lies elsewhere or is published is not."""

import shutil
from pathlib import Path

import pytest

from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PreconditionError
from policybridge_server.repository import BUNDLED, is_bundled
from tests.repositories import answering, write_python
from tests.serving import serving

CODE = "open('ran', 'w').close()\n"


def test_the_demo_runs_no_python_that_is_published_or_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_python(tmp_path / "policies", "mine", CODE + answering("1"))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "policy.py").write_text(CODE + answering("2"))
    serve = ("--demo", "--repository", tmp_path / "policies", "--allow-publish", "--grpc", "127.0.0.1:0")
    with serving(*serve) as (_, address):
        client = RepositoryClient(address)
        for name, config in (("mine", ""), ("new", 'backend = "python"\n')):
            with pytest.raises(PreconditionError, match="is Python code, which this server does not run"):
                client.publish(name, tmp_path / "new", config=config)
        with pytest.raises(PreconditionError, match="is Python code"):
            client.set_alias("mine", "stable", 1)
        with pytest.raises(PreconditionError, match="a part of the package"):
            client.publish("evict-first-legal", tmp_path / "new")
        assert client.show("evict-first-legal").versions[0].loaded
        client.close()
    assert not (tmp_path / "ran").exists()


def test_the_demo_takes_no_changes_unless_it_is_asked_to(tmp_path: Path) -> None:
    with serving("--demo", "--repository", tmp_path, "--grpc", "127.0.0.1:0") as (_, address):
        client = RepositoryClient(address)
        with pytest.raises(PreconditionError, match="this server takes no changes"):
            client.publish("new", tmp_path, config='backend = "onnx"\n')
        client.close()


def test_a_copy_of_a_bundled_policy_or_a_link_to_elsewhere_is_not_bundled(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED / "evict-first-legal", tmp_path / "copy")
    (tmp_path / "link").symlink_to(BUNDLED / "evict-first-legal")
    assert is_bundled(BUNDLED / "evict-first-legal" / "1")
    assert is_bundled(tmp_path / "link" / "1")
    assert not is_bundled(tmp_path / "copy" / "1")
    assert not is_bundled(BUNDLED / ".." / "elsewhere")
