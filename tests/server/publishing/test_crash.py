"""kill −9 during a publish: after a restart either the old or the new version serves, whole."""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference
from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import Client, client, identity, write_adder, write_policy
from tests.server.publishing.test_weights import own

_LARGE = 24 << 20


def large_version(folder: Path, number: int) -> Path:
    """Write a version that takes long enough to be killed in the midst of it."""
    write_adder(folder, number)
    (folder / "more.bin").write_bytes(random.Random(number).randbytes(_LARGE))
    return folder


def kill_after(server: RunningServer, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, server.kill)
    timer.start()
    return timer


@pytest.mark.parametrize("what", ["version", "policy", "weights"])
def test_after_a_kill_in_a_publish_the_old_or_the_new_version_serves_whole(tmp_path: Path, what: str) -> None:
    policies = tmp_path / "policies"
    write_policy(policies)
    files = large_version(tmp_path / "large", 777)
    digests = {1: identity(policies / "adder" / "1")}
    delays = random.Random(what)
    with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
        started = time.monotonic()
        acknowledged = publish(server, what, files, 0)
        seconds = time.monotonic() - started
    for _ in range(8):
        with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
            acknowledged = check(server, policies, what, acknowledged, digests)
            killing = kill_after(running, delays.uniform(0, 2 * seconds))
            with suppress(PolicyBridgeError):
                while True:
                    acknowledged = publish(server, what, files, acknowledged)
            killing.join()
    with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
        check(server, policies, what, acknowledged, digests)


def publish(server: Client, what: str, files: Path, before: int) -> int:
    if what == "weights":
        return server.repository.publish_weights(PolicyReference("adder"), own(before + 1)).version
    if what == "version":
        return server.repository.publish("adder", files).version
    name = f"fresh{before + 1}"
    server.repository.publish(name, files, config='backend = "onnx"\n', aliases=["stable"])
    return before + 1


def check(server: Client, policies: Path, what: str, acknowledged: int, digests: dict[int, str]) -> int:
    """Compare the served versions with the disk and with what was acknowledged; return the latest one."""
    for policy in server.repository.policies():
        version, number = server.ask(policy.name)
        folder = policies / policy.name / str(version.version)
        assert identity(folder) == version.digest
        assert policy.error == ""
        assert number in ((100, 777) if what != "weights" else range(1, 10_000))
        assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]
        for each in server.repository.show(policy.name).versions:
            assert digests.setdefault(each.version, each.digest) == each.digest or what == "policy"
    assert not [path for path in policies.iterdir() if path.name.startswith(".publish")]
    latest = server.ask()[0].version if what != "policy" else len(server.repository.policies()) - 1
    assert latest in (acknowledged, acknowledged + 1, 1)
    assert latest >= acknowledged
    return latest
