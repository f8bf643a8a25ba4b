"""Files, weights alone and copied folders: their versions are loaded by one publication at a time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from policybridge_client.policies import RepositoryClient
from policybridge_serdes import PolicyReference
from tests.conftest import ServerFactory
from tests.plugins.building import install_backend
from tests.server.publishing.policies import wait_for

pytest.importorskip("watchfiles")

BACKEND = """
import time
from pathlib import Path

import numpy as np

from policybridge_server.backends.contract import declared_signature

LOG = Path("{log}")


def log(line):
    with LOG.open("a") as file:
        file.write(line + "\\n")


class Backend:
    runs_code = False

    def load(self, artifact, config):
        name = (artifact / "name.txt").read_text()
        log(name)
        time.sleep(0.3)
        log(name)
        return Model(declared_signature(config))

    def replace_weights(self, artifact, config, weights):
        (artifact / "name.txt").unlink()
        (artifact / "name.txt").write_text("weights alone")


class Model:
    batched = True
    inline = True

    def __init__(self, signature):
        self.signature = signature

    def evaluate(self, batch):
        return np.zeros(len(batch.values), batch.advice.dtype)

    def close(self):
        pass
"""
TOML = """
backend = "logging_loads"
features = [{name = "x", type = "int64_t", shape = [1]}]
advice = {name = "advice", type = "int64_t", shape = [1]}
"""
WAYS = ("files over gRPC", "weights alone", "a copied folder")


def write_version(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "name.txt").write_text(name)
    return folder


def test_publications_of_all_ways_take_the_same_stages_one_after_another(
    tmp_path: Path, server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, policies = tmp_path / "log", tmp_path / "policies"
    source = BACKEND.replace("{log}", str(log))
    monkeypatch.setenv("PYTHONPATH", str(install_backend("logging_loads", source, tmp_path)), prepend=":")
    for policy in ("one", "two", "three"):
        write_version(policies / policy / "1", "the first version")
        (policies / policy / "policy.toml").write_text(TOML)
    files, copied = write_version(tmp_path / "files", WAYS[0]), write_version(tmp_path / "copied", WAYS[2])
    server = server_factory(policies, "--allow-publish")
    with RepositoryClient(server.grpc, timeout=120) as repository, ThreadPoolExecutor() as pool:
        first = pool.submit(repository.publish, "one", files)
        wait_for(lambda: log.exists() and WAYS[0] in log.read_text())
        second = pool.submit(repository.publish_weights, PolicyReference("two"), {"w": np.zeros(1, np.float32)})
        copied.rename(policies / "three" / "2")
        assert [each.result().version for each in (first, second)] == [2, 2]
        wait_for(lambda: log.read_text().count(WAYS[2]) == 4)
        wait_for(lambda: repository.show("three").versions[0].version == 2)
    lines = [line for line in log.read_text().splitlines() if line in WAYS]
    # Each was loaded by the process that tries it, then by the server: a line at the beginning and at the end of each.
    order = dict.fromkeys(lines)
    assert lines == [name for name in order for _ in range(4)]
    assert set(order) == set(WAYS)
