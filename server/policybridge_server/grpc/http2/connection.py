"""One HTTP/2 connection: its turns, and how it begins and ends. Its parts have files of their own."""

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.budget import Budget, PeerBudget
from policybridge_server.grpc.http2.contract import TimedStream
from policybridge_server.grpc.http2.frames import PREFACE, Code, Http2Error, goaway_frame
from policybridge_server.grpc.http2.greeting import FRAME, HTTP1, OURS, has_preface, has_settings, is_http1
from policybridge_server.grpc.http2.incoming import Incoming
from policybridge_server.grpc.http2.owner import ConnectionOwner
from policybridge_server.grpc.http2.patience import Patience
from policybridge_server.grpc.http2.receiving import Receiving
from policybridge_server.grpc.http2.sending import Sending
from policybridge_server.grpc.http2.streams import Streams
from policybridge_server.grpc.http2.turn import Turn
from policybridge_server.transports.doors import Wait

_LOG = logging.getLogger(__name__)

_ROOM: Final = 32 << 20
"""Bytes that a connection may hold besides one message of the largest size."""

_LAST_WORDS: Final = 1.0
"""Seconds for a peer that broke the protocol to read the error."""


class Http2Connection:
    """Serves one connection inside the loop's turns.

    In one turn it works for a millisecond or so, and less if many connections of its peer do, and leaves the rest for
    the next, so that a client that sends a lot delays no other. `Budget` bounds its memory, and `Patience` the frames
    that advance no call.

    Its parts: `Incoming` cuts frames, `Streams` takes them, `Receiving` and `Sending` are the two directions of flow
    control, `Turn` writes. The parts for a `Stream` are attributes here (`StreamConnection`).

    Args:
        connection: the accepted socket, non-blocking.
        peer: the client's address in gRPC's form.
        peer_budget: the budget of all connections from there.
        owner: the server that accepted it.
        gone: called when the connection is closed, each time.

    """

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        peer_budget: PeerBudget,
        owner: ConnectionOwner,
        gone: "Callable[[Http2Connection], None]",
    ) -> None:
        self.peer = peer
        self.peer_budget = peer_budget
        self.sending = Sending(FRAME)
        self.budget = Budget(owner.limit + _ROOM, peer_budget.memory)
        self.patience = Patience()
        self._owner = owner
        self._gone = gone
        self._prefaced = self._leaving = self._broken = self._ending = False
        self._closing: asyncio.TimerHandle | None = None
        self._channel = owner.channel(connection, self, peer_budget)
        self._turn = turn = Turn(self._channel, self.sending, peer_budget)
        self._receiving = Receiving(self.budget, turn.write)
        # Bound methods, so that a stream calls them directly.
        self.write: Callable[[bytes], None] = turn.write
        self.told: Callable[[int], None] = partial(owner.loop.counters.told, "grpc")
        self.is_tired: Callable[[], bool] = turn.is_tired
        self.count: Callable[[int], None] = self._receiving.count
        self.let_send: Callable[[TimedStream, int], bool] = self._receiving.let_send
        self.relieve: Callable[[TimedStream], None] = self._receiving.relieve
        self._streams = Streams(self, owner, self._receiving)
        self._incoming = Incoming(turn, self._greet, self._streams.take)

    def ready(self, events: int) -> None:
        """Take the arrived bytes; an error ends only this connection."""
        turn = self._turn
        out = turn.out = []
        turn.began = 0.0
        try:
            if events & select.EPOLLOUT:
                self._drain()
            if events & select.EPOLLIN:
                if not (self._incoming.behind or turn.unfinished):
                    self._receive()
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.close()
            else:
                self._catch_up()
            if self.sending.untried:
                self.sending.pump()
        except Http2Error as fault:
            self._break(fault)
        except Exception as error:
            _LOG.error("a connection failed", exc_info=error)
            self._break(Http2Error(Code.INTERNAL_ERROR, f"the server failed: {error!r}"))
        turn.out = None
        if out:
            turn.transmit(b"".join(out))
        turn.began = 0.0
        if self._incoming.behind or turn.unfinished or self._ending or self.sending.untried:
            self._go_on()

    def resume(self) -> None:
        """Continue the work left from the turn before."""
        self._turn.again = False
        self.ready(0)

    def _drain(self) -> None:
        self._channel.send_waiting()
        if not self._channel.unsent:
            self.sending.drain()

    def _catch_up(self) -> None:
        if self._ending:
            self._end_streams()
        elif self._turn.unfinished:
            self._turn.proceed()
        elif self._incoming.behind and not self._channel.unsent:
            self._incoming.feed(b"")

    def _go_on(self) -> None:
        """Work in the next turn again, if anything is left that can be done."""
        turn = self._turn
        if turn.again:
            return
        # While the socket is full, take no frames; it reports when it is not.
        left = turn.unfinished or self.sending.due or (self._incoming.behind and not self._channel.unsent)
        if left or (self._ending and self._streams.open):
            turn.schedule(self)

    def _receive(self) -> None:
        data = self._channel.receive()
        if not data:
            if data is not None:
                self.close()
        elif not self._broken:
            self._incoming.feed(data)

    def _greet(self, data: bytes) -> int:
        """Take the preface and check that SETTINGS follow; give how many bytes are taken."""
        if is_http1(data):
            self.write(HTTP1)
            self._end_badly()
            return len(data)
        if has_preface(data) and not self._prefaced:
            self._prefaced = True
            self.write(OURS)
        if not has_settings(data):
            return 0
        self._incoming.greeted = True
        self._owner.doors.expect(self, Wait.IDLE)
        return len(PREFACE)

    def _break(self, fault: Http2Error) -> None:
        self.write(goaway_frame(self._streams.numbers.told, fault.code, str(fault)))
        self._end_badly()

    def _end_badly(self) -> None:
        """Take nothing more, and let the peer read why: closing now would lose it if the peer has sent more."""
        self._turn.flush()
        self._owner.doors.satisfied(self)
        self._broken = True
        self._channel.finish()
        if self._closing is None:
            self._closing = self._owner.loop.call_later(_LAST_WORDS, self.close)
        self._end_streams()

    def pump(self) -> None:
        """Send the waiting data, in this turn or in later ones."""
        turn = self._turn
        if turn.out is not None:
            return  # the turn ends with it
        out: list[bytes] = []
        turn.out = out
        self.sending.pump()
        turn.out = None
        if out:
            turn.transmit(b"".join(out))
        self._go_on()

    def await_rest(self, stream: TimedStream, waiting: bool) -> None:
        """Wait for the rest of a message that the client has begun, for a limited time; or no longer."""
        if waiting:
            self._owner.doors.expect(stream, Wait.MESSAGE)
        else:
            self._owner.doors.satisfied(stream)

    def later(self, stream: TimedStream) -> None:
        """Let ``stream`` proceed in a later turn."""
        self._turn.unfinished[stream] = None
        if self._turn.out is None:
            self._go_on()

    def forget(self, stream: TimedStream) -> None:
        """Forget a stream that has ended."""
        streams = self._streams
        streams.open.pop(stream.number, None)
        self._turn.unfinished.pop(stream, None)
        if not stream.remote_closed:
            streams.numbers.ended_first(stream.number)
        if self._receiving.large:
            self.relieve(stream)
        if streams.open:
            return
        if self._leaving:
            self._channel.finish()
        if not self._ending:
            self._owner.doors.expect(self, Wait.IDLE)

    def leave(self) -> None:
        """Tell the peer that no new calls are taken, and close after the last one."""
        self._leaving = self._streams.refused = True
        self.write(goaway_frame(self._streams.numbers.told, Code.NO_ERROR, "the server shuts down"))
        if not self._streams.open:
            self._channel.finish()

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Close the connection, and send the peer the reason."""
        code = Code.NO_ERROR if self._incoming.greeted else Code.ENHANCE_YOUR_CALM
        self.write(goaway_frame(self._streams.numbers.told, code, str(error)))
        self.close()

    def shut(self, error: PolicyBridgeError) -> None:
        """End all calls with an error."""
        for stream in list(self._streams.open.values()):
            stream.fail(error)

    def close(self) -> None:
        """Close the connection; twice is once."""
        if self._closing is not None:
            self._closing.cancel()
        self._turn.flush()
        self._channel.close()
        self._gone(self)
        self._end_streams()

    def _end_streams(self) -> None:
        """End all calls: some in each turn, because there may be thousands."""
        self._ending = True
        self._streams.blocks.begun = None
        self._incoming.clear()
        self._receiving.large.clear()
        while self._streams.open:
            _, stream = self._streams.open.popitem()
            stream.reset()
            if self.is_tired():
                break
        if not self._streams.open:
            # A little later, after the callbacks of the ended calls.
            self._owner.loop.call_later(_LAST_WORDS, self.budget.close)
        if self._turn.out is None:
            self._go_on()
