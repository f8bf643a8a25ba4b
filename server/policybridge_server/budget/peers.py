"""The budget of one peer, and those of all peers of a server."""

from typing import Final
from weakref import WeakValueDictionary

from policybridge_server.budget.memory import Memory
from policybridge_server.budget.turns import Turns
from policybridge_server.budget.work import Threads
from policybridge_server.loop import Loop

PEER: Final = "peer"
"""Under this key a request of aiohttp has the `PeerBudget` of its client."""


class PeerBudget:
    """What one peer may use of the server, by all its connections on all doors.

    Args:
        name: of the peer: an address, or a user of this machine.
        peers: those of the server.

    Attributes:
        memory: its bytes.
        turns: its time in the turns of the loop.
        work: its share of the threads that compute for clients.
        reading: its share of the threads that read files for clients.

    """

    def __init__(self, name: str, peers: "Peers") -> None:
        self.memory = peers.memory.of(name)
        self.turns = Turns(peers.loop)
        self.work = peers.computing.of(name)
        self.reading = peers.reading.of(name)


class Peers:
    """The peers of one server. For the loop thread.

    Args:
        loop: that of the server.
        most: bytes that all of them may make the server hold.

    Attributes:
        loop: that of the server.
        memory: the bytes of all.
        computing: the threads that compute for clients.
        reading: the threads that read files for clients.

    """

    def __init__(self, loop: Loop, most: int) -> None:
        self.loop = loop
        self.memory = Memory(most)
        self.computing = Threads.computing(loop)
        self.reading = Threads.reading(loop)
        self._peers: WeakValueDictionary[str, PeerBudget] = WeakValueDictionary()

    def of(self, name: str) -> PeerBudget:
        """Give the budget of a peer, the same one for all its connections; see `peer_of`."""
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = PeerBudget(name, self)
        return peer
