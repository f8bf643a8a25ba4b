"""A server whose ledger is in PostgreSQL; its spool takes the acknowledged records while the database is away."""

import signal
from contextlib import ExitStack
from typing import Any

from tests.kills.checks import LedgerCheck
from tests.kills.machine import Server
from tests.kills.scene import Given, Scene
from tests.postgres_soak.cluster import running_postgres


class Database(Scene):
    """Kills the database, the server, or both."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._postgres = given.stack.enter_context(running_postgres())
        self._url = self._postgres.create()
        self._machine, self._clients = self.machine("machine"), self.clients()
        self._ledger = LedgerCheck(self._url, None, self.figures)
        self._server = self._serve()

    def _serve(self) -> Server:
        own: dict[str, Any] = {"ledger": self._url, "ledger_spool": str(self.given.folder / "spool")}
        return self._machine.serve(self.config(**own, ledger_max_bytes=None, ledger_max_age=None))

    def round(self) -> None:
        """See `Scene.round`."""
        asked = self._clients.ask(self._server)
        with ExitStack() as stack:
            self.wait(asked)
            self._machine.jump()
            if self.chance.random() < 0.7:
                self._postgres.stop(signal.SIGKILL)
                self.figures.killed["database"] += 1
                stack.callback(self._postgres.start)
                self.wait(asked)
            if self.chance.random() < 0.5:
                self.kill("server", self._server.process)
                # Sometimes while the database is away.
                stack.callback(self._again)
        self.wait(asked)
        self._ledger.take(self._clients.rest(asked))

    def _again(self) -> None:
        self._server = self._serve()

    def finish(self) -> None:
        """End the server as an operator does, so that it sends the spool, and check everything."""
        self._server.process.end(signal.SIGTERM)
        # The next server sends the records that a killed one left in the spool.
        self._again()
        self._server.process.end(signal.SIGTERM)
        self._ledger.check_all()
