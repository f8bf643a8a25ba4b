"""A server of several workers: a worker is killed and replaced again and again, and in the end the parent."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyFailedError
from tests.kills.checks import LedgerCheck, RepositoryCheck
from tests.kills.clients import Heard
from tests.kills.machine import Server
from tests.kills.messages import Said
from tests.kills.scene import KEEP, MOST_BYTES, PUBLISHED, Given, Scene

_WORKERS: Final = 2
_KILLS: Final = 5
"""Workers that are killed for each parent."""

_PATIENCE: Final = 60.0
_LOOK: Final = 0.01


class Workers(Scene):
    """Kills workers and parents. A new parent takes over sockets and ledger."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._machine, self._clients = self.machine("machine"), self.clients()
        self._ledger = LedgerCheck(given.folder / "server" / "ledger.db", MOST_BYTES, self.figures)
        self._versions = RepositoryCheck(self.repository, PUBLISHED, KEEP, self.figures)
        self._published: list[Said] = []

    def _serve(self) -> Server:
        server = self._machine.serve(self.config(workers=_WORKERS))
        self._versions.check(server.grpc, self._published, restarted=True)
        return server

    def round(self) -> None:
        """See `Scene.round`."""
        server = self._serve()
        asked = self._clients.ask(server)
        first = time.monotonic()
        for number in range(_KILLS):
            known = asked.marks()
            with self.publishing(self._machine, server) as (_, published):
                self.wait(asked, published=published)
                self._machine.jump()
                first = first if number else time.monotonic()
                self._kill_worker(server)
                self.wait(asked)
            self._wait_replaced(server, asked, known)
            self._versions.check(server.grpc, published.said, restarted=False)
        with self.publishing(self._machine, server) as (_, published):
            self.wait(asked, published=published)
            workers = server.workers()
            self.kill("parent", server.process)
        self._published = published.said
        self._check_gone(workers)
        self._ledger.check(self._clients.rest(asked), first)

    def _kill_worker(self, server: Server) -> None:
        os.kill(self.chance.choice(server.workers()), signal.SIGKILL)
        self.figures.killed["worker"] += 1

    def _wait_replaced(self, server: Server, asked: Heard, known: set[str]) -> None:
        """Wait until a new worker answers.

        Raises:
            PolicyFailedError: none does.

        """
        end = time.monotonic() + _PATIENCE
        while asked.marks() <= known or len(server.workers()) < _WORKERS:
            if time.monotonic() > end:
                raise PolicyFailedError(f"no new worker answers; {len(server.workers())} run")
            time.sleep(_LOOK)

    def _check_gone(self, workers: list[int]) -> None:
        """Check that the workers of a killed parent end."""
        end = time.monotonic() + _PATIENCE
        while left := [each for each in workers if _runs(each)]:
            if time.monotonic() > end:
                self.figures.blame([f"{len(left)} workers outlive their parent"])
                return
            time.sleep(_LOOK)

    def finish(self) -> None:
        """Serve once more, end that server as an operator does, and check all that is kept."""
        self._serve().process.end(signal.SIGTERM)
        self._ledger.check_all()


def _runs(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
