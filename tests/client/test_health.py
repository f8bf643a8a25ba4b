"""``policybridge health``: what scripts and containers ask."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import command, running_server
from tests.repositories import answering, write_python


def asked(*words: object) -> tuple[int, str]:
    ended = subprocess.run(command("health", *words), capture_output=True, text=True, timeout=120, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_the_status_tells_whether_the_server_or_one_policy_takes_sessions() -> None:
    with TemporaryDirectory(prefix="pb-") as name:
        write_python(Path(name) / "policies", "one", answering("1"))
        with running_server(Path(name) / "policies", Path(name)) as server:
            assert asked("--server", server.grpc, "--policy", "one", "--wait", "60") == (0, "serving\n")
            status, said = asked("--server", server.grpc, "--policy", "two")
            assert (status, "no policy or service 'two'" in said) == (1, True), said
            status, said = asked("--server", server.socket)
            assert (status, "health is asked over gRPC" in said) == (2, True), said
        status, said = asked("--server", server.grpc, "--timeout", "1")
        assert (status, said.startswith("policybridge health: ")) == (1, True), said
