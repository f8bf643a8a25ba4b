"""A server under systemd: sockets that are open before it, and what it tells its manager."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import pytest

from policybridge_client import open_runner
from tests.conftest import command
from tests.repositories import answering, write_python
from tests.server.telemetry.test_metrics import ADVICE, X
from tests.serving import started

# As systemd does: the sockets are descriptors from 3 on, and the variables name the process itself.
_PASS = """
import os, sys
count = int(sys.argv[1])
for place, number in enumerate(sys.argv[2 : 2 + count]):
    os.dup2(int(number), 100 + place)
for place in range(count):
    os.dup2(100 + place, 3 + place)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[1]}
os.execv(sys.executable, [sys.executable, *sys.argv[2 + count :]])
"""


@contextmanager
def activated(
    sockets: list[socket.socket], *arguments: object, stderr: TextIO | None = None
) -> Iterator[subprocess.Popen[str]]:
    numbers = [each.fileno() for each in sockets]
    _, *words = command("serve", *arguments)
    launch = [sys.executable, "-c", _PASS, str(len(numbers)), *map(str, numbers), *words]
    process = subprocess.Popen(launch, pass_fds=numbers, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as name:
        write_python(Path(name) / "policies", "one", answering("1"))
        yield Path(name)


def test_a_server_takes_the_sockets_that_systemd_has_opened_and_leaves_them_for_the_next_one(folder: Path) -> None:
    path = folder / "server.sock"
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp:
        unix.bind(str(path))
        tcp.bind(("127.0.0.1", 0))
        for each in (unix, tcp):
            each.listen()
        address = f"127.0.0.1:{tcp.getsockname()[1]}"
        for _ in range(2):
            arguments = ("--repository", folder / "policies", "--allow-python", "--socket", path, "--grpc", address)
            with activated([tcp, unix], *arguments) as process:
                # The client need not wait for the line `ready`: its connection waits in the socket.
                for server in (f"socket:{path}", address):
                    open_runner(server, policy="one", features=[X], advice=ADVICE, timeout=60).close()
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            assert path.exists()


def test_grpcs_own_library_takes_no_socket_and_the_server_says_that_it_cannot_listen(folder: Path) -> None:
    with socket.socket() as tcp, (folder / "errors").open("w") as errors:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        address = f"127.0.0.1:{tcp.getsockname()[1]}"
        with activated(
            [tcp], "--repository", folder / "policies", "--allow-python", "--grpcio", address, stderr=errors
        ) as process:
            assert process.wait(60) == 2
    assert f"cannot listen on {address}" in (folder / "errors").read_text()


def test_the_manager_is_told_when_the_server_is_ready_reloads_and_stops(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        with started("--demo", "--grpc", "127.0.0.1:0") as (process, _):
            assert told(manager)[0] == "READY=1"
            process.send_signal(signal.SIGHUP)
            reloading = told(manager)
            assert reloading[0] == "RELOADING=1"
            assert reloading[1].startswith("MONOTONIC_USEC=")
            assert told(manager) == ["READY=1"]
            process.send_signal(signal.SIGTERM)
            assert told(manager) == ["STOPPING=1"]
            assert process.wait(60) == 0


def told(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


_ON_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_server_whose_terminal_goes_away_ends(folder: Path) -> None:
    terminal, child = os.openpty()
    words = command("serve", "--demo", "--socket", folder / "server.sock")
    launch = [sys.executable, "-c", _ON_TERMINAL, *words]
    with subprocess.Popen(launch, stdin=child, stdout=subprocess.PIPE, text=True) as process:
        os.close(child)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        os.close(terminal)
        assert process.wait(60) == 0
