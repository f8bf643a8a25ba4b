"""A scene: servers under load, some of whose processes are killed round by round."""

import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policybridge_bench.network import write_network
from tests.kills.checks import Figures
from tests.kills.clients import Clients, Heard
from tests.kills.machine import Machine, Server
from tests.kills.processes import Killed
from tests.repositories import answering, write_python

PUBLISHED: Final = "published"
KEEP: Final = 5
MOST_BYTES: Final = 2 << 20
_MOST_AGE: Final = 86400.0

_MOST_SAID: Final = 16
"""Messages of the clients between two kills, at most."""

_MOST_PUBLISHED: Final = 5
"""Messages of the publisher that are waited for, at most."""

_SOON: Final = 0.01


@dataclass(frozen=True)
class Given:
    """The means of a scene: an empty folder, the end of its processes, a chance, and the figures."""

    folder: Path
    stack: ExitStack
    chance: random.Random
    figures: Figures


class Scene(ABC):
    """Servers that are killed, and their clients.

    Args:
        given: its folder, processes, chance and figures.

    Attributes:
        published_in_python: whether the published policy is Python, which takes less time than a model, because the
            server starts no process that probes it.

    """

    published_in_python = True

    def __init__(self, given: Given) -> None:
        self.given = given
        self.figures, self.chance = given.figures, given.chance
        self.repository = given.folder / "policies"
        write_network(self.repository, "network")
        self.candidate = self.repository / "network" / "1"
        if self.published_in_python:
            write_python(self.repository, PUBLISHED, answering("1"))
            self.candidate = Path(shutil.copytree(self.repository / PUBLISHED / "1", given.folder / "candidate"))
        else:
            write_network(self.repository, PUBLISHED)

    @abstractmethod
    def round(self) -> None:
        """Serve, ask, publish and kill; check what can be checked now."""

    @abstractmethod
    def finish(self) -> None:
        """Check everything that is kept."""

    def machine(self, name: str) -> Machine:
        """Make a machine."""
        return Machine(self.given.folder, name, self.given.stack, self.chance, self.figures.jumps)

    def clients(self, number: int = 0) -> Clients:
        """Make clients."""
        return Clients(self.given.folder / f"asker{number}.log", self.given.stack)

    def config(self, **more: Any) -> dict[str, Any]:
        """Give the configuration of a server."""
        return {
            "repository": [str(self.repository)],
            "allow_publish": True,
            "allow_python": True,
            "keep_versions": KEEP,
            "ledger_max_bytes": MOST_BYTES,
            "ledger_max_age": _MOST_AGE,
            **self.listening(),
            **more,
        }

    def listening(self, name: str = "server") -> dict[str, Any]:
        """Give the places of a server: always the same, so that a server takes those of the killed one."""
        folder = self.given.folder / name
        folder.mkdir(exist_ok=True)
        return {
            "socket": [str(folder / "s")],
            "grpc": [f"unix:{folder / 'g'}"],
            "ledger": str(folder / "ledger.db"),
        }

    @contextmanager
    def publishing(self, machine: Machine, server: Server) -> Iterator[tuple[Killed, Heard]]:
        """Publish in the block, if nobody kills the publisher before its end."""
        publisher = machine.publish(server.grpc, PUBLISHED, self.candidate)
        heard = Heard()
        heard.listen(publisher.output)
        try:
            yield publisher, heard
        finally:
            publisher.end()
            heard.all()

    def wait(self, *heard: Heard, published: Heard | None = None) -> None:
        """Wait for a random part of the messages."""
        for each in heard:
            each.wait(self.chance.randrange(_MOST_SAID // len(heard)))
        if published is not None:
            # The first publication of a server takes longer than the others.
            published.wait(self.chance.randrange(_MOST_PUBLISHED))
        time.sleep(self.chance.uniform(0, _SOON))

    def kill(self, name: str, process: Killed) -> None:
        """Kill a process, and count it if it still ran."""
        self.figures.killed[name] += process.end()
