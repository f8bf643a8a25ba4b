"""One connection's part of a turn of the loop: joins its writes, and bounds its work."""

import time
from collections import OrderedDict

from policybridge_server.budget import PeerBudget
from policybridge_server.grpc.http2.contract import TimedStream
from policybridge_server.grpc.http2.sending import Sending
from policybridge_server.loop import Worker
from policybridge_server.transports.channel import SocketChannel


class Turn:
    """The turn that a connection has now, or has next.

    Args:
        channel: the socket's channel.
        sending: learns when the socket is full.
        peer: the budget of the connection's peer.

    Attributes:
        out: the frames of this turn; ``None`` between turns, when each is sent at once.
        began: when the connection first looked at the clock in this turn; 0 before.
        unfinished: streams that continue in a later turn.
        again: whether another turn is scheduled.

    """

    __slots__ = ("_channel", "_sending", "_turns", "again", "began", "out", "unfinished")

    def __init__(self, channel: SocketChannel, sending: Sending, peer: PeerBudget) -> None:
        self._channel = channel
        self._sending = sending
        self._turns = peer.turns
        self.out: list[bytes] | None = None
        self.began = 0.0
        self.unfinished: OrderedDict[TimedStream, None] = OrderedDict()
        self.again = False

    def write(self, data: bytes) -> None:
        """Send frames. Those of one turn are sent together."""
        if self.out is None:
            self.transmit(data)
        else:
            self.out.append(data)

    def transmit(self, data: bytes) -> None:
        """Send frames now."""
        self._channel.send(data)
        if self._channel.unsent:
            self._sending.fill()

    def flush(self) -> None:
        """Send the writes of this turn so far."""
        if self.out:
            self.transmit(b"".join(self.out))
            self.out.clear()

    def is_tired(self) -> bool:
        """Whether the connection has worked long enough in this turn of the loop."""
        now = time.perf_counter()
        if not self.began:
            self.began = now
        return now - self.began > self._turns.slice

    def schedule(self, connection: Worker) -> None:
        """Let the connection resume behind the others of its peer."""
        self.again = True
        self._turns.again(connection)

    def proceed(self) -> None:
        """Continue the unfinished streams, until all had their share or the turn ends."""
        for _ in range(len(self.unfinished)):
            stream, _ = self.unfinished.popitem(last=False)
            stream.proceed()
            if self.is_tired():
                return
