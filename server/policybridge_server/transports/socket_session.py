"""One connection of the Unix socket: hello, then LLVM's stream in and framed advice out."""

import asyncio
import logging
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from math import nan
from typing import Final

from policybridge_core.errors import InvalidError, PolicyBridgeError, TooLargeError, UnavailableError, UnknownError
from policybridge_serdes import Codec, ElementType, Outcome, Values, load_serdes
from policybridge_serdes.interactive import MAX_LINE, Context, Event, Header, InteractiveReader
from policybridge_server.engine.engine import Session
from policybridge_server.transports.channel import Channel
from policybridge_server.transports.contract import Host
from policybridge_server.transports.socket_frames import (
    RECORDED,
    Hello,
    Report,
    error_line,
    opened_line,
    parse_hello,
)

_LOG = logging.getLogger(__name__)

_ADVICE: Final = b"\0"
_ERROR: Final = b"\1"
_CHANCE: Final = struct.Struct("<f")

_LINGER: Final = 1.0
"""Seconds for a peer to read why its session ended."""


class SocketSession:
    """Serves one connection inside the loop's turns; also the sink of its session's answers.

    An observation is handed over only when the one before it is answered, so that answers keep their order whatever
    thread makes them, and a client that never reads costs one buffer.

    Args:
        connection: just accepted, non-blocking.
        host: who answers.
        gone: told when the connection is closed.

    """

    def __init__(self, connection: socket.socket, host: Host, gone: Callable[["SocketSession"], None]) -> None:
        self._host = host
        self._gone = gone
        self._take: Callable[[bytes], None] = self._greet
        self._line = b""
        self._reader = InteractiveReader(host.config.max_observation_bytes)
        self._events: deque[Event] = deque()
        self._asked = False
        self._prefix = _ADVICE
        self._wants_chance = False
        self._session: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        # Set where observations or advice are not plain packed records.
        self._features: Codec | None = None
        self._advice: Codec | None = None
        self._channel = Channel(connection, host.loop, self)

    def ready(self, events: int) -> None:
        """Take what has arrived; whatever goes wrong ends this session and no other."""
        try:
            if events & select.EPOLLOUT:
                self._channel.send_waiting()
            if events & select.EPOLLIN:
                self._receive()
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.close()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not isinstance(error, PolicyBridgeError):
            _LOG.error("a session on the socket failed", exc_info=error)
            error = UnknownError(f"the server failed: {error!r}")
        self.fail(error)

    def _receive(self) -> None:
        data = self._channel.receive()
        if data:
            self._take(data)
        elif data is not None:
            self.close()

    def _greet(self, data: bytes) -> None:
        line, newline, rest = (self._line + data).partition(b"\n")
        if len(line) > MAX_LINE:
            raise TooLargeError(f"the hello line is longer than {MAX_LINE} bytes")
        if not newline:
            self._line = line
            return
        hello, self._line = parse_hello(line), rest
        self._channel.read(False)
        if isinstance(hello, Report):
            self._host.opener.engine.report(hello.report, hello.outcome.outcome, self._reported_alone)
            return
        self._opening = self._host.loop.spawn(self._open(hello))

    def _reported_alone(self, error: PolicyBridgeError | None) -> None:
        if error is None:
            self._channel.send(RECORDED)
            self._linger()
        else:
            self.fail(error)

    async def _open(self, hello: Hello) -> None:
        try:
            session = await self._host.opener.open(hello.reference, hello.session_options, self)
            if not self._channel.is_open:
                session.close()
                return
            self._session, self._take = session, self._stream
            self._channel.send(opened_line(session.view.id, session.policy))
            self._prefix = b"" if hello.framing == "raw" else _ADVICE
            self._wants_chance = hello.framing == "chance"
            self._channel.read(True)
            self._stream(self._line)
        except Exception as error:
            self._break(error)

    def _stream(self, data: bytes) -> None:
        self._events.extend(self._reader.feed(data))
        self._advance()

    def _advance(self) -> None:
        session = self._session
        while self._events and not self._asked and session is not None:
            event = self._events.popleft()
            if isinstance(event, bytes):
                self._asked = True
                session.submit(event if self._features is None else self._features.decode(event))
            elif isinstance(event, Context):
                session.view.context = event.name
            elif isinstance(event, Outcome):
                self._asked = True
                session.report(event, self._reported)
            else:
                self._bind(session, event)
        self._channel.read(not self._events)

    def _bind(self, session: Session, header: Header) -> None:
        features, advice = header.signature.features, header.signature.advice
        session.bind(header.signature)
        plain = features.fixed and all(spec.type is not ElementType.BOOL for spec in features.specs)
        serdes = load_serdes("bitstream")
        self._features = None if plain else serdes.codec(features)
        self._advice = None if advice.fixed else serdes.codec(header.signature.advice_layout)
        if not (advice.fixed or self._prefix):
            raise InvalidError(f"raw framing cannot carry the advice {advice}, whose size varies")

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Send the advice, and hand over the next observation if it is there already."""
        if self._advice is None:
            frame = self._prefix + advice.tobytes()
        else:
            payload = self._advice.encode(advice)
            frame = b"".join((self._prefix, len(payload).to_bytes(8, "little"), payload))
        if self._wants_chance:
            frame += _CHANCE.pack(nan if log_probability is None else log_probability)
        self._channel.send(frame)
        self._answered()

    def _answered(self) -> None:
        self._asked = False
        if self._events:
            try:
                self._advance()
            except Exception as error:
                self._break(error)

    def _reported(self, error: PolicyBridgeError | None) -> None:
        """Acknowledge the outcome, which is answered as an observation is."""
        if error is not None:
            self.fail(error)
            return
        if self._prefix:
            self._channel.send(_ADVICE + RECORDED)
        self._answered()

    def fail(self, error: PolicyBridgeError) -> None:
        """Send the error where the framing has room for one, and end the session."""
        if self._session is None:
            self._channel.send(error_line(error))
        elif self._prefix:
            self._channel.send(_ERROR + error_line(error))
        self._linger()

    def _linger(self) -> None:
        # Closing a Unix socket with unread data resets the connection: the peer would meet that before our last words.
        self._take = _discard
        self._drop()
        self._channel.read(True)
        self._channel.finish()
        self._end()
        self._lingering = self._host.loop.call_later(_LINGER, self.close)

    def drain(self) -> None:
        """Refuse a connection that has not opened a session yet: the server shuts down."""
        if self._session is None and self._opening is None:
            self.fail(UnavailableError("the server is shutting down and opens no new session"))

    def close(self) -> None:
        """End the session and close the connection; twice is once."""
        self._channel.close()
        self._drop()
        self._end()
        if self._lingering is not None:
            self._lingering.cancel()
        self._gone(self)

    def _drop(self) -> None:
        """Let go of what came and is not answered any more."""
        self._events.clear()
        self._line = b""
        self._reader = InteractiveReader()

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()


def _discard(data: bytes) -> None:
    """Take what a peer sends after its session has ended."""
