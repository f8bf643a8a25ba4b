"""The bytes that clients may make the server hold in memory: of all, of a peer, of a connection."""

from typing import Final, Protocol
from weakref import WeakValueDictionary

from policybridge_core.errors import TooLargeError
from policybridge_server.budget.returning import trim

_STEP: Final = 64 << 10
"""Bytes that a connection takes from the shared budget at a time, so that small changes do not touch it."""

_MUCH: Final = 8 << 20
"""Bytes. After a connection that held more, the allocator's free memory is returned to the system."""

FREE: Final = 64 << 10
"""Bytes reserved for each connection, so that a client with small requests is always served."""


class Pool(Protocol):
    """Bytes that the connections of a server share."""

    def take(self, size: int) -> None:
        """Count ``size`` bytes more.

        Raises:
            TooLargeError: they would be too many; nothing is counted.

        """

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""


class Memory:
    """The budget of all connections of a server together.

    Args:
        most: bytes.

    Attributes:
        held: bytes that they hold.

    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._peers: WeakValueDictionary[str, PeerMemory] = WeakValueDictionary()

    def of(self, peer: str) -> "PeerMemory":
        """Give the part of a peer, the same one for all its connections; see `peer_of`."""
        part = self._peers.get(peer)
        if part is None:
            part = self._peers[peer] = PeerMemory(peer, self)
        return part

    def take(self, size: int) -> None:
        """Count ``size`` bytes more.

        Raises:
            TooLargeError: all connections together would hold too much; nothing is counted.

        """
        if self.held + size > self.most:
            raise TooLargeError(
                f"all clients together make the server hold {self.most} bytes of requests and unread answers "
                "(max_buffered_bytes); try again later"
            )
        self.held += size

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self.held -= size


class PeerMemory:
    """The bytes of all connections of one peer.

    It may hold as many bytes as it leaves free for others. So one peer holds at most half of the memory, and each of
    ``n`` peers at most a part of ``n + 1``: whoever comes next finds some (A. K. Choudhury, E. L. Hahne: Dynamic queue
    length thresholds for shared-memory packet switches, 1998).

    Args:
        name: of the peer.
        memory: of all peers.

    Attributes:
        held: bytes that its connections hold.

    """

    def __init__(self, name: str, memory: Memory) -> None:
        self.held = 0
        self._name = name
        self._memory = memory

    def take(self, size: int) -> None:
        """Count ``size`` bytes more.

        Raises:
            TooLargeError: the peer would hold more than it leaves free; nothing is counted.

        """
        memory = self._memory
        if self.held + size > memory.most - memory.held - size:
            raise TooLargeError(
                f"all clients of {self._name} together make the server hold {self.held} bytes of requests and unread "
                f"answers, {memory.held} of {memory.most} bytes are held (max_buffered_bytes), and as many must stay "
                "free as one address or user holds; try again later"
            )
        memory.take(size)
        self.held += size

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self._memory.give(size)
        self.held -= size


class Budget:
    """The budget of one connection. It is returned when its calls have ended.

    Args:
        most: bytes.
        pool: the memory of the connection's peer.

    Attributes:
        held: bytes that the connection holds.
        peak: the most bytes that it has taken from the shared budget.

    """

    __slots__ = ("_low", "_most", "_pool", "_reserved", "held", "peak")

    def __init__(self, most: int, pool: Pool) -> None:
        self.held = 0
        self.peak = 0
        self._most = most
        self._pool = pool
        self._reserved = FREE
        self._low = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes more.

        Raises:
            TooLargeError: the connection, its peer, or all together, would hold too much; nothing is counted.

        """
        self.held += size
        if self.held > self._reserved:
            self._reserve(size)

    def _reserve(self, size: int) -> None:
        more = -(-(self.held - self._reserved) // _STEP) * _STEP
        if self.held > self._most:
            self.held -= size
            raise TooLargeError(
                f"the calls of this connection would make the server hold more than {self._most} bytes of requests and "
                "unread answers; wait for answers, and read them, before more is sent"
            )
        try:
            self._pool.take(more)
        except TooLargeError:
            self.held -= size
            raise
        self.peak = max(self.peak, self.held)
        self._keep(self._reserved + more)

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self.held -= size
        if self.held < self._low:
            kept = max(FREE, -(-self.held // _STEP) * _STEP + _STEP)
            self._pool.give(self._reserved - kept)
            self._keep(kept)

    def hold(self, size: int) -> None:
        """Count ``size`` bytes in place of those before.

        Raises:
            TooLargeError: the connection, its peer, or all together, would hold too much; nothing is changed.

        """
        if size > self.held:
            self.take(size - self.held)
        elif size < self.held:
            self.give(self.held - size)

    def close(self) -> None:
        """Give the memory back that the connection held, now that its calls are over."""
        if self.peak > _MUCH:
            self.peak = 0
            trim()

    def _keep(self, reserved: int) -> None:
        self._reserved = reserved
        # Keep a part: the end of a call is mostly followed by a new one.
        self._low = 0 if reserved == FREE else max(1, reserved - 4 * _STEP)
