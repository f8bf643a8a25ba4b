"""The replicas that follow this server, and the state of each."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from policybridge_core.text import PeerText
from policybridge_serdes import PolicyVersion
from policybridge_server.following.state import Lack
from policybridge_server.repository import Repository

REMEMBERED: Final = 600.0
"""Seconds that a disconnected replica still counts."""

_LOOK: Final = 0.05
"""Seconds between two looks at replicas of other processes."""

_MOST: Final = 1000
"""Replicas that are remembered."""


class WaitFor(StrEnum):
    """The number of replicas to wait for."""

    NONE = "none"
    MOST = "most"
    ALL = "all"


@dataclass
class Replica:
    """One replica.

    Attributes:
        name: text for people.
        revision: the repository's revision that it serves.
        lacks: the versions that it lacks of that.
        kept: versions that it has and the leader never had.
        left: the end of its last connection, by `time.monotonic`; ``None`` while it is connected.
        connections: number of its open connections.

    """

    name: PeerText
    revision: int = 0
    lacks: Sequence[Lack] = ()
    kept: Sequence[PolicyVersion] = ()
    left: float | None = None
    connections: int = 0

    @property
    def away(self) -> float | None:
        """For how many seconds it has been away; ``None`` while it is connected."""
        return None if self.left is None else time.monotonic() - self.left

    def is_current(self, revision: int) -> bool:
        """Whether it serves all of this revision."""
        return self.left is None and self.revision >= revision and not self.lacks


@dataclass(frozen=True)
class View:
    """The replicas that are connected to one process of this server.

    Attributes:
        process: its number.
        revision: of its repository; each process counts for itself.
        replicas: by their ids.

    """

    process: int
    revision: int
    replicas: Mapping[PeerText, Replica]


@dataclass(frozen=True)
class Waited:
    """The result of a wait for replicas.

    Attributes:
        met: whether enough replicas serve this server's state.
        replicas: all of them by name, and whether each is current.

    """

    met: bool
    replicas: Sequence[tuple[Replica, bool]]


@dataclass
class Replicas:
    """All of them, those too that have been away for less than `REMEMBERED` seconds. For the loop thread.

    Attributes:
        repository: of this process.
        gather: gives the views of the server's other processes.
        clock: gives seconds, as `time.monotonic` does.

    """

    repository: Repository
    gather: Callable[[], Awaitable[Sequence[View]]]
    clock: Callable[[], float] = time.monotonic
    _known: dict[PeerText, Replica] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def joined(self, identity: PeerText, name: PeerText) -> Iterator[Replica]:
        """Count a replica as connected."""
        self._forget()
        replica = self._known.setdefault(identity, Replica(name))
        replica.name, replica.left = name, None
        # It gets the whole state again.
        replica.revision, replica.lacks = 0, ()
        replica.connections += 1
        try:
            yield replica
        finally:
            replica.connections -= 1
            replica.left = None if replica.connections else self.clock()

    def adopted(
        self, replica: Replica, revision: int, lacks: Sequence[Lack], kept: Sequence[PolicyVersion] = ()
    ) -> None:
        """Record the state of a replica."""
        replica.revision, replica.lacks, replica.kept = revision, lacks, kept
        self._changed.set()
        self._changed = asyncio.Event()

    def view(self) -> View:
        """Return the replicas known in this process."""
        self._forget()
        return View(os.getpid(), self.repository.revision, self._known)

    async def wait(self, wanted: WaitFor, seconds: float) -> Waited:
        """Wait until this number of replicas serves this server's present state, or until the time-out."""
        end = time.monotonic() + seconds
        views = [self.view(), *await self.gather()]
        needed = {view.process: view.revision for view in views}
        while True:
            replicas = sorted(_merged(views, needed), key=lambda each: each[0].name)
            met = _is_met(wanted, [is_current for _, is_current in replicas])
            left = end - time.monotonic()
            if met or left <= 0:
                return Waited(met, replicas)
            # A replica of another process is looked for from time to time.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, _LOOK) if len(views) > 1 else left)
            views = [self.view(), *await self.gather()]

    def _forget(self) -> None:
        now = self.clock()
        ends = {key: replica.left for key, replica in self._known.items() if replica.left is not None}
        for key, left in sorted(ends.items(), key=lambda each: each[1]):
            if now - left > REMEMBERED or len(self._known) > _MOST:
                del self._known[key]


def _merged(views: Sequence[View], needed: Mapping[int, int]) -> list[tuple[Replica, bool]]:
    """Give each replica once, as the process knows it to which it is connected, or was last."""
    merged: dict[PeerText, tuple[Replica, bool]] = {}
    for view in views:
        for key, replica in view.replicas.items():
            if key not in merged or _last(replica) > _last(merged[key][0]):
                merged[key] = replica, replica.is_current(needed.get(view.process, view.revision))
    return list(merged.values())


def _last(replica: Replica) -> float:
    return math.inf if replica.left is None else replica.left


def _is_met(wanted: WaitFor, current: Sequence[bool]) -> bool:
    needed = {WaitFor.NONE: 0, WaitFor.MOST: len(current) // 2 + 1, WaitFor.ALL: len(current)}[wanted]
    return sum(current) >= min(needed, len(current))
