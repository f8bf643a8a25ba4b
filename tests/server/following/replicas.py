"""Leaders and replicas for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import Client, client
from tests.serving import started


@contextmanager
def leading(repository: Path, folder: Path, *arguments: object) -> Iterator[tuple[Client, RunningServer]]:
    """Serve a repository to replicas; the sockets are in ``folder``."""
    folder.mkdir(exist_ok=True)
    with running_server(repository, folder, "--allow-publish", *arguments) as running, client(running) as leader:
        yield leader, running


@contextmanager
def replica(
    leader: str, folder: Path, *arguments: object, log: Path | None = None
) -> Iterator[tuple[Client, RunningServer]]:
    """Follow a leader."""
    with serving(folder, "--follow", leader, *arguments, log=log) as served:
        yield served


@contextmanager
def serving(folder: Path, *arguments: object, log: Path | None = None) -> Iterator[tuple[Client, RunningServer]]:
    """Serve what comes from elsewhere; the sockets and the copies are in ``folder``."""
    folder.mkdir(exist_ok=True)
    listen = ["--grpc", "127.0.0.1:0", "--socket", folder / "s", "--cache", folder / "cache"]
    with started(*listen, *arguments, log=log) as (process, addresses):
        running = RunningServer(process, addresses[0], addresses[1])
        with client(running) as made:
            yield made, running
