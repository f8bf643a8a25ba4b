"""How many sessions there may be, in all and of one client, and how many of one client in a second."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from policybridge_core.errors import TooLargeError


class Elsewhere(Protocol):
    """The sessions of the server's other processes, which share the limits."""

    def session(self, client: str, change: int) -> None:
        """Count a session of this process that was opened (1) or has ended (-1)."""

    def opened(self, client: str) -> None:
        """Count a session that ``client`` asks this process for in this second."""

    def sessions(self) -> int:
        """Give the number of sessions that the others have."""

    def of_client(self, client: str) -> int:
        """Give the number of sessions that the others have of ``client``."""

    def opened_by(self, client: str) -> int:
        """Give the number of sessions that ``client`` has asked the others for in this second."""


class _Nowhere:
    """There is no other process."""

    def session(self, client: str, change: int) -> None: ...

    def opened(self, client: str) -> None: ...

    def sessions(self) -> int:
        return 0

    def of_client(self, client: str) -> int:  # noqa: ARG002
        return 0

    def opened_by(self, client: str) -> int:  # noqa: ARG002
        return 0


@dataclass
class Admission:
    """Counts the sessions that are open or opening. For the loop thread.

    Attributes:
        most: limit of all sessions.
        most_of_client: limit of one client: a host, or all clients of Unix sockets.
        most_in_second: limit of sessions that one client opens in one second; ``None``: none.
        elsewhere: counts the sessions of the server's other processes.

    """

    most: int = 20_000
    most_of_client: int = 10_000
    most_in_second: int | None = None
    elsewhere: Elsewhere = field(default_factory=_Nowhere)
    _counts: Counter[str] = field(default_factory=Counter)
    _all: int = 0
    _second: int = 0
    _opened: Counter[str] = field(default_factory=Counter)

    def enter(self, client: str) -> Callable[[], None]:
        """Count a session of ``client``, empty if unknown to the transport; return a function that ends the count.

        Raises:
            TooLargeError: there are too many.

        """
        if self._all + self.elsewhere.sessions() >= self.most:
            raise TooLargeError(f"{self.most} sessions are open; no more are taken (--max-sessions)")
        if client and self._counts[client] + self.elsewhere.of_client(client) >= self.most_of_client:
            raise TooLargeError(
                f"{self.most_of_client} sessions of {client} are open; no more are taken (--max-client-sessions)"
            )
        if client and self.most_in_second is not None:
            self._check_rate(client, self.most_in_second)
        self._all += 1
        self._counts[client] += 1
        self.elsewhere.session(client, 1)
        return partial(self._leave, client)

    def _check_rate(self, client: str, most: int) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._opened.clear()
        if self._opened[client] + self.elsewhere.opened_by(client) >= most:
            raise TooLargeError(f"{client} has opened {most} sessions within a second (--max-client-opens); try again")
        self._opened[client] += 1
        self.elsewhere.opened(client)

    def _leave(self, client: str) -> None:
        self._all -= 1
        self._counts[client] -= 1
        self.elsewhere.session(client, -1)
        if not self._counts[client]:
            del self._counts[client]
