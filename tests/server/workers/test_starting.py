"""How a server with workers starts: under systemd, and what it says when it cannot."""

import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_server.workers.worker import seconds_awake
from tests.conftest import command
from tests.repositories import write_python
from tests.server.publishing.policies import write_policy
from tests.server.telemetry.test_systemd import activated, told
from tests.server.workers.fleet import opened

DIES = """
import os
os._exit(7)
"""


def refused(*arguments: object) -> str:
    """Serve with two workers; give what is said of why that cannot be."""
    done = subprocess.run(
        command("serve", "--workers", 2, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_worker_that_dies_again_and_again_at_its_start_ends_the_server(tmp_path: Path) -> None:
    write_python(tmp_path / "policies", "dies", DIES)
    said = refused("--repository", tmp_path / "policies", "--allow-python", "--socket", tmp_path / "s.sock")
    assert "worker 0 ended 3 times before it could serve; the last process ended with exit status 7" in said
    assert not (tmp_path / "s.sock").exists()


def test_what_workers_cannot_share_is_told_before_they_start(tmp_path: Path) -> None:
    assert "only --grpc and --socket are shared" in refused("--demo", "--http", "127.0.0.1:0")
    missing = refused("--repository", tmp_path / "none", "--socket", tmp_path / "s.sock")
    assert f"the repository {tmp_path / 'none'} is not a folder" in missing


def test_workers_take_the_socket_of_systemd_and_the_manager_is_told_of_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(tmp_path / "policies")
    with TemporaryDirectory(prefix="pb-") as name, ExitStack() as stack:
        path = Path(name) / "server.sock"
        manager = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        manager.bind(f"{name}/notify")
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{name}/notify")
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(path))
        unix.listen()
        arguments = ("--workers", 2, "--repository", tmp_path / "policies", "--socket", path)
        process = stack.enter_context(activated([unix], *arguments))
        opened(stack, f"socket:{path}")[1].close()
        assert told(manager) == ["READY=1", "STATUS=serves 1 policies with 2 workers"]
        process.send_signal(signal.SIGHUP)
        assert told(manager)[0] == "RELOADING=1"
        assert told(manager) == ["READY=1"]
        process.send_signal(signal.SIGTERM)
        assert told(manager) == ["STOPPING=1"]
        assert process.wait(60) == 0
        assert path.exists()


@pytest.mark.parametrize(("cores", "seconds"), [(1, 0.0), (2, 0.0), (3, 2e-5)])
def test_workers_stay_awake_only_if_there_are_more_cores_than_workers(
    cores: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert seconds_awake(20, 2) == seconds
