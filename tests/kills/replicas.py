"""A leader and its follower, each with a ledger and a clock of its own."""

import signal
from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any, Final

from policybridge_client.policies import RepositoryClient
from tests.kills.checks import LedgerCheck, RepositoryCheck
from tests.kills.machine import Server
from tests.kills.scene import KEEP, MOST_BYTES, PUBLISHED, Given, Scene

_LEADER: Final = "leader"
_FOLLOWER: Final = "follower"
_SECONDS: Final = 60.0
_LOOK: Final = 0.1


class Replicas(Scene):
    """Kills leader, follower and publisher; then both must have the same versions."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._names = (_LEADER, _FOLLOWER)
        self._machines = {name: self.machine(name) for name in self._names}
        self._clients = {name: self.clients(number) for number, name in enumerate(self._names)}
        self._ledgers = {
            name: LedgerCheck(given.folder / name / "ledger.db", MOST_BYTES, self.figures) for name in self._names
        }
        self._versions = RepositoryCheck(self.repository, PUBLISHED, KEEP, self.figures)
        self._servers = {name: self._serve(name) for name in self._names}

    def _serve(self, name: str) -> Server:
        config: dict[str, Any] = self.config(**self.listening(name))
        if name == _FOLLOWER:
            leader = self.listening(_LEADER)["grpc"][0]
            cache = str(self.given.folder / "cache")
            config |= {"repository": [], "allow_publish": False, "keep_versions": None}
            config |= {"follow": f"grpc:{leader}", "cache": cache}
        return self._machines[name].serve(config)

    def round(self) -> None:
        """See `Scene.round`."""
        asked = {name: self._clients[name].ask(self._servers[name]) for name in self._names}
        killed = self.chance.choice([[_LEADER], [_FOLLOWER], [_LEADER, _FOLLOWER], [_FOLLOWER, _LEADER]])
        with self.publishing(self._machines[_LEADER], self._servers[_LEADER]) as (publisher, published):
            self.wait(*asked.values(), published=published)
            for name in self._names:
                self._machines[name].jump()
            moment = monotonic()
            for name in killed:
                self.kill(name, self._servers[name].process)
            self.kill("publisher", publisher)
        for name in self._names:
            self._ledgers[name].check(self._clients[name].rest(asked[name]), moment)
        for name in killed:
            self._servers[name] = self._serve(name)
        self._versions.check(self._servers[_LEADER].grpc, published.said, restarted=_LEADER in killed)
        self._check_same()

    def _check_same(self) -> None:
        """Check that the follower gets all versions of the leader."""
        end = monotonic() + _SECONDS
        while missing := self._served(_LEADER).items() - self._served(_FOLLOWER).items():
            if monotonic() > end:
                self.figures.blame([f"the follower lacks {sorted(missing)} after {_SECONDS:g} s"])
                return
            sleep(_LOOK)

    def _served(self, name: str) -> Mapping[int, str]:
        """Give the digests of a server's versions by their numbers, and by 0 the number of `latest`."""
        with RepositoryClient(self._servers[name].grpc) as client:
            details = client.show(PUBLISHED)
        latest = {0: str(details.summary.latest)}
        return latest | {each.version: each.digest for each in details.versions if not each.error}

    def finish(self) -> None:
        """End both as an operator does, and check all that is kept."""
        for name in self._names:
            self._servers[name].process.end(signal.SIGTERM)
            self._ledgers[name].check_all()
