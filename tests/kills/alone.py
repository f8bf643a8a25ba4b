"""A server of one process, and its publisher."""

import signal
from contextlib import ExitStack
from time import monotonic
from typing import Final

from tests.kills.checks import LedgerCheck, RepositoryCheck
from tests.kills.clients import Heard
from tests.kills.machine import Server
from tests.kills.messages import Said
from tests.kills.processes import Killed
from tests.kills.scene import KEEP, MOST_BYTES, PUBLISHED, Given, Scene

_PUBLISHERS: Final = 3
"""Publishers that are killed for each server."""


class Alone(Scene):
    """Kills the server and the publisher in any order."""

    published_in_python = False

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._machine, self._clients = self.machine("machine"), self.clients()
        self._ledger = LedgerCheck(given.folder / "server" / "ledger.db", MOST_BYTES, self.figures)
        self._versions = RepositoryCheck(self.repository, PUBLISHED, KEEP, self.figures)
        self._published: list[Said] = []

    def _serve(self) -> Server:
        server = self._machine.serve(self.config())
        self._versions.check(server.grpc, self._published, restarted=True)
        self._published = []
        return server

    def round(self) -> None:
        """See `Scene.round`."""
        server = self._serve()
        asked = self._clients.ask(server)
        for _ in range(_PUBLISHERS - 1):
            with self.publishing(self._machine, server) as (publisher, published):
                self.wait(asked, published=published)
                self.kill("publisher", publisher)
            self._versions.check(server.grpc, published.said, restarted=False)
        with self.publishing(self._machine, server) as (publisher, published):
            killed = self._kill(server, publisher, asked, published)
        self._published = published.said
        self._ledger.check(self._clients.rest(asked), killed)

    def _kill(self, server: Server, publisher: Killed, asked: Heard, published: Heard) -> float:
        """Kill both in any order while the clock jumps; give the moment of the server's end."""
        self.wait(asked, published=published)
        self._machine.jump()
        with ExitStack() as later:
            later.callback(self.kill, "publisher", publisher)
            if self.chance.random() < 0.5:
                later.close()
            self.wait(asked)
            self._machine.jump()
            killed = monotonic()
            self.kill("server", server.process)
        return killed

    def finish(self) -> None:
        """Serve once more, end that server as an operator does, and check all that is kept."""
        self._serve().process.end(signal.SIGTERM)
        self._ledger.check_all()
