"""One client's session, one question at a time: the common part of sockets, gRPC and pipes.

A message is passed on only when the one before it is answered. So answers keep their order, whatever thread makes
them, and a client that does not wait for its answers costs one buffer: while messages wait, no more bytes are read.
Its next messages are taken when its peer has a turn (`Turns`), so that it keeps no other client waiting.
"""

import select
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Generic, TypeVar

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Values
from policybridge_serdes.interactive import Context, Decided, End, Event, Header
from policybridge_serdes.limits import LARGE, Buffer
from policybridge_serdes.values import Row
from policybridge_server.budget import PeerBudget
from policybridge_server.engine.session import Session
from policybridge_server.transports.channel import Channel
from policybridge_server.transports.contract import Host
from policybridge_server.transports.failures import as_error

_Message = TypeVar("_Message")
_Data = TypeVar("_Data", bound=Buffer)


class Conversation(ABC, Generic[_Message]):
    """Opens one session, hands it a client's messages, and is the sink of its answers.

    A transport's subclass reads messages, writes answers, and pauses reading.

    Args:
        host: opens the session.
        peer: the budget of all connections of the client.
        name: of the client's connection, for the log: ``"a session on the socket"``.

    """

    def __init__(self, host: Host, peer: PeerBudget, name: str) -> None:
        self._host = host
        self._peer = peer
        self._name = name
        self._waiting: deque[_Message] = deque()
        self._coming: Iterator[_Message] | None = None
        self._queued = False
        self._unanswered = False
        self._paused = False
        self._over = False
        self._session: Session | None = None
        self._resumes = False
        # Whether an outcome waits for its answer, and how far the end has come that was taken beside it.
        self._reporting = self._ending = self._ended = False

    @property
    def _client(self) -> str:
        """The client that the session counts for: one host, or all of this machine together."""
        return "this machine"

    @property
    def _reporter(self) -> str:
        """The client whose word the session is; empty: one whom the operator trusts, such as one of his sockets."""
        return ""

    @abstractmethod
    def _take(self, message: _Message) -> None:
        """Act on one message; its error becomes a `fail`. No other is taken while ``_unanswered`` is true."""

    @abstractmethod
    def _opened(self, session: Session) -> None:
        """Tell the client that its session is open; an error becomes a `fail`."""

    @abstractmethod
    def _reply(self, advice: Values, log_probability: float | None) -> None:
        """Write one decision to the client."""

    @abstractmethod
    def _pause(self, paused: bool) -> None:
        """Stop reading from the client, or go on."""

    @abstractmethod
    def fail(self, error: PolicyBridgeError) -> None:
        """Send the client the error instead of advice; this ends the session."""

    def _acknowledge(self) -> None:
        """Tell the client that its outcome is recorded, if its protocol can."""

    def _receive(self, messages: Iterable[_Message]) -> None:
        """Take messages in their order, each after the answer to the one before."""
        self._waiting.extend(messages)
        self._advance()

    def _advance(self) -> None:
        waiting, end = self._waiting, 0.0
        try:
            if self._reporting and not self._ending:
                self._join_end()
            while (waiting or (self._coming is not None and self._parsed(self._coming))) and not self._unanswered:
                if end and perf_counter() > end:
                    self._queue()
                    break
                self._take(waiting.popleft())
                # A lone observation needs no clock.
                if not (end or self._unanswered):
                    end = perf_counter() + self._peer.turns.slice
        except Exception as error:
            self._break(error)
        paused = bool(waiting)
        if paused is not self._paused and not self._over:
            self._paused = paused
            self._pause(paused)

    def _parsed(self, coming: Iterator[_Message]) -> bool:
        """Parse the next message; return whether there was one."""
        for message in coming:
            self._waiting.append(message)
            return True
        self._coming = None
        self._all_parsed()
        return False

    def _all_parsed(self) -> None:
        """Take the news that the messages which were coming are parsed."""

    def _queue(self) -> None:
        """Take the next messages when the peer has a turn."""
        if not self._queued:
            self._queued = True
            self._peer.turns.again(self)

    def resume(self) -> None:
        """Take the next messages."""
        self._queued = False
        if not self._over:
            self._advance()

    def _answered(self) -> None:
        """Take the next message, if it is there, when the peer has a turn."""
        self._unanswered = False
        if self._waiting or self._paused:
            self._queue()

    def _hold(self) -> None:
        """Read nothing, and take no message, before `_answered`."""
        self._unanswered = self._paused = True
        self._pause(True)

    def _open(self, reference: PolicyReference, options: SessionOptions) -> None:
        """Open the session; in a task if its policy has to be loaded."""
        session = self._host.opener.open_now(reference, options, self, self._client, self._reporter)
        if session is None:
            self._hold()
            self._host.loop.spawn(self._open_session(reference, options))
        else:
            self._unanswered = True
            self._begun(session)

    async def _open_session(self, reference: PolicyReference, options: SessionOptions) -> None:
        try:
            session = await self._host.opener.open(reference, options, self, self._client, self._reporter)
            if self._over:
                session.close()
            else:
                self._begun(session)
        except Exception as error:
            self._break(error)

    def _begun(self, session: Session) -> None:
        self._session = session
        self._opened(session)
        if self._resumes:
            self._unanswered = True
            session.resume(self._resumed)
        else:
            self._answered()

    def _resumed(self, error: PolicyBridgeError | None) -> None:
        """Take the events of a record, or refuse it."""
        if self._over:
            return
        if error is not None:
            self.fail(error)
        else:
            self._answered()

    def _take_recorded(self, session: Session, event: Event) -> None:
        """Act on an event of a record. The end alone is answered."""
        match event:
            case Header():
                session.bind(event.signature)
            case Context():
                session.context(event.name)
            case Decided():
                self._record(session, event)
            case Outcome():
                self._report(session, event)
            case End():
                self._finish(session)
            case _:
                raise InvalidError(
                    "the record of an earlier session has signatures, contexts, decisions, outcomes, an end"
                )

    def _finish(self, session: Session) -> None:
        """End the session, and tell the client when its record is durable, its end included."""
        self._unanswered = True
        session.finish(self._finished)

    def _finished(self, error: PolicyBridgeError | None) -> None:
        if self._over:
            return  # the client has gone away
        if error is not None:
            self.fail(error)
        elif self._reporting:
            # The outcome is answered first: it may be refused, or another process may have to write it.
            self._ended = True
        else:
            self._ended_well()

    def _ended_well(self) -> None:
        """Tell the client that the record is durable, and end."""

    def _ask(self, session: Session, row: Row) -> None:
        """Ask for one decision."""
        self._unanswered = True
        session.submit(row)

    def _ask_for(self, session: Session, decode: Callable[[_Data], Row], data: _Data) -> None:
        """Ask for one decision on what ``decode`` reads from ``data``; in a thread if that may take long."""
        if len(data) <= LARGE:
            self._ask(session, decode(data))
            return
        self._unanswered = True
        self._host.loop.spawn(self._ask_aside(session, decode, data))

    async def _ask_aside(self, session: Session, decode: Callable[[_Data], Row], data: _Data) -> None:
        try:
            row = await self._peer.work.run(decode, data)
            if not self._over:
                self._ask(session, row)
        except Exception as error:
            self._break(error)

    def _record(self, session: Session, decided: Decided) -> None:
        """Record decisions of the client. They have no answer, and no message is taken before their check is made."""
        self._unanswered = True
        session.decided(decided, self._recorded)

    def _recorded(self) -> None:
        if not self._over:
            self._answered()

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Send the advice, and take the next message if it has arrived."""
        if self._over:
            return  # a worker still had the observation when the session ended
        try:
            self._reply(advice, log_probability)
        except Exception as error:
            self._break(error)
        else:
            self._answered()

    def _report(self, session: Session, outcome: Outcome | None) -> None:
        """Record an outcome, or with ``None`` the decisions so far; it is answered like an observation."""
        self._unanswered = self._reporting = True
        session.report(outcome, self._reported)
        if self._reporting:
            self._join_end()

    def _join_end(self) -> None:
        """Take the end of the session beside the outcome before it, if it has come: the ledger writes both together."""
        waiting = self._waiting
        if not waiting and self._coming is not None:
            self._parsed(self._coming)
        if waiting and (waiting[0] is None or isinstance(waiting[0], End)):
            self._ending = True
            self._take(waiting.popleft())

    def _reported(self, error: PolicyBridgeError | None) -> None:
        self._reporting = False
        if self._over:
            return
        if error is not None:
            self.fail(error)
            return
        self._acknowledge()
        if self._ended:
            self._ended_well()
        elif not self._ending:
            self._answered()

    def _break(self, error: Exception) -> None:
        self.fail(as_error(error, self._name, "" if self._session is None else self._session.view.id))

    def _end(self) -> None:
        """End the session and drop waiting messages; a second call does nothing."""
        self._over = True
        self._coming = None
        self._waiting.clear()
        if self._session is not None:
            self._session.close()


class ChannelConversation(Conversation[_Message]):
    """A conversation over a channel of bytes, whose events it handles. A subclass makes ``_channel``."""

    _channel: Channel

    @abstractmethod
    def _feed(self, data: bytes) -> None:
        """Take bytes that have arrived."""

    @abstractmethod
    def _hung_up(self) -> None:
        """Take the end of the client's bytes, or of its connection."""

    def ready(self, events: int) -> None:
        """Send and take bytes; an error ends this conversation and no other."""
        try:
            if events & select.EPOLLOUT:
                self._channel.send_waiting()
                self._sent()
            if events & select.EPOLLIN:
                data = self._channel.receive()
                if data:
                    self._feed(data)
                elif data is not None:
                    self._hung_up()
            elif events & (select.EPOLLHUP | select.EPOLLERR) and not self._queued:
                # Messages that wait for a turn came before the end.
                self._hung_up()
        except Exception as error:
            self._break(error)

    def _sent(self) -> None:
        """Take the news that bytes which waited have been sent, all or some."""

    def _pause(self, paused: bool) -> None:
        self._channel.read(not paused)
