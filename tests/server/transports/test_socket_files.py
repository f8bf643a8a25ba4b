"""The file of a Unix socket belongs to the server that has bound it, and to no other one."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_client.connection import connect
from tests.conftest import command
from tests.serving import started

NAMES = ("socket", "grpc", "grpcio")


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


def listening(folder: Path) -> list[object]:
    """Give the options for a Unix socket of each transport."""
    grpc = ("--grpc", f"unix:{folder}/grpc", "--grpcio", f"unix:{folder}/grpcio")
    return ["--demo", "--socket", folder / "socket", *grpc]


def check(*addresses: str) -> None:
    """Reach a server at each address."""
    for address in addresses:
        with closing(connect(address, timeout=60)) as connection:
            connection.check()


@pytest.mark.parametrize("more", [(), ("--workers", 2)], ids=["one process", "workers"])
def test_a_server_that_ends_leaves_the_sockets_of_the_next_one(folder: Path, more: tuple[object, ...]) -> None:
    with ExitStack() as stack:
        first, addresses = stack.enter_context(started(*listening(folder), *more))
        for name in NAMES:
            (folder / name).unlink()
        second, _ = stack.enter_context(started(*listening(folder), *more))
        first.terminate()
        assert first.wait(60) == 0
        assert {each.name for each in folder.iterdir()} == set(NAMES)
        check(*addresses)
        second.terminate()
        assert second.wait(60) == 0
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_socket_that_another_server_serves_is_refused_and_stays(folder: Path, name: str) -> None:
    with started(*listening(folder)) as (_, addresses):
        path = folder / "socket" if name == "socket" else f"unix:{folder}/{name}"
        done = subprocess.run(
            command("serve", "--demo", f"--{name}", path), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 2
        assert "Address already in use" in done.stderr
        check(*addresses)
