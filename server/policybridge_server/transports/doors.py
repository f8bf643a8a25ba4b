"""The clients that the server waits for, their budgets, and the file descriptors that it keeps back.

A silent client costs a descriptor. So each wait for a client has a limit, and the last descriptors are for
the server's own files: its ledger, its models, its listeners. An open session has no limit: its compiler may
think for any time.
"""

import asyncio
import resource
import time
from enum import IntEnum
from itertools import islice
from typing import Final, Protocol

from policybridge_core.errors import DeadlineError, PolicyBridgeError, UnavailableError
from policybridge_server.budget import Peers
from policybridge_server.config import ServerConfig
from policybridge_server.loop import Loop

_LINGER: Final = 1.0
"""Seconds in which a client can read why its session ended, before the connection is closed."""

_MOST: Final = 16
"""Limit of guests of one kind dismissed in one turn, because thousands may be due together."""


class Wait(IntEnum):
    """The next message that a client owes.

    Attributes:
        HELLO: the first words of its connection.
        OPEN: the first message of a call; the call has no descriptor of its own.
        MESSAGE: the rest of a message that it has begun.
        IDLE: nothing, but its connection carries neither a session nor a call.
        LEAVING: nothing more; it may still read the reason of its refusal.

    """

    # Of integers: the dicts of the waits hash them in C.
    HELLO = 1
    OPEN = 2
    MESSAGE = 3
    IDLE = 4
    LEAVING = 5


_GIVEN_UP: Final = (Wait.LEAVING, Wait.HELLO, Wait.IDLE)
"""The waits that end early when descriptors run out, in this order; within one kind, the longest first."""


class Guest(Protocol):
    """A connection, or a call, that the server waits for."""

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Send the client the error if its protocol can, and end the connection or the call."""


class Doors:
    """All waits of one server. For the loop thread.

    Args:
        loop: runs the timer.
        config: the operator's limits.

    Attributes:
        loop: that of the server.
        peers: the budgets of the server's clients.
        boundary: no connection keeps this descriptor or a higher one.

    """

    def __init__(self, loop: Loop, config: ServerConfig) -> None:
        self.loop = loop
        self.peers = Peers(loop, config.max_buffered_bytes)
        self.boundary = _boundary(config.reserve_descriptors)
        self._limits = {
            Wait.HELLO: config.hello_timeout,
            Wait.OPEN: config.hello_timeout,
            Wait.MESSAGE: config.message_timeout,
            Wait.IDLE: config.idle_timeout,
            Wait.LEAVING: _LINGER,
        }
        self._kinds: dict[Guest, Wait] = {}
        # Guests by the beginnings of their waits, the longest wait first: a dict keeps the order of insertion.
        self._begun: dict[Wait, dict[Guest, float]] = {wait: {} for wait in Wait}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def expect(self, guest: Guest, wait: Wait) -> None:
        """Begin to wait for ``guest``; this ends an earlier wait for it."""
        self.satisfied(guest)
        now = time.monotonic()
        self._kinds[guest] = wait
        self._begun[wait][guest] = now
        due = now + self._limits[wait]
        if self._timer is None or due < self._due:
            self._look_at(due)

    def satisfied(self, guest: Guest) -> None:
        """Wait no longer; a guest that is not waited for is ignored."""
        wait = self._kinds.pop(guest, None)
        if wait is not None:
            del self._begun[wait][guest]

    def make_room(self) -> bool:
        """Dismiss one guest without a session to make room for another client; return whether there was one."""
        for wait in _GIVEN_UP:
            for guest in self._begun[wait]:
                self._dismiss(guest, UnavailableError("the server is full and gives the place to another client"))
                return True
        return False

    def _look_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self.loop.call_later(max(0.0, due - time.monotonic()), self._look)

    def _look(self) -> None:
        """Dismiss guests whose time is over, some in each turn, and look again when the next one's is."""
        self._timer = None
        now = time.monotonic()
        for wait, limit in self._limits.items():
            first = islice(self._begun[wait].items(), _MOST)
            late = [guest for guest, begun in first if begun + limit <= now]
            for guest in late:
                if self._kinds.get(guest) is wait:
                    self._dismiss(guest, _late(wait, limit))
        dues = [next(iter(guests.values())) + self._limits[wait] for wait, guests in self._begun.items() if guests]
        if dues:
            self._look_at(min(dues))

    def _dismiss(self, guest: Guest, error: PolicyBridgeError) -> None:
        self.satisfied(guest)
        guest.dismiss(error)


def _late(wait: Wait, limit: float) -> PolicyBridgeError:
    if wait is Wait.IDLE:
        return UnavailableError(f"the connection carried nothing for {limit:g} seconds (--idle-timeout); connect again")
    if wait is Wait.MESSAGE:
        return DeadlineError(f"a message was begun and is not whole after {limit:g} seconds (--message-timeout)")
    return DeadlineError(f"the client's first message did not come within {limit:g} seconds (--hello-timeout)")


def _boundary(reserve: int) -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The kernel returns the lowest free descriptor. So all descriptors below it are in use, whatever
    # for, and need not be counted.
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit - min(reserve, limit // 4)
