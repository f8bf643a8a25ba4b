"""One connection of the Unix socket: hello, then LLVM's stream in and framed advice out."""

import select
import socket
import struct
from collections.abc import Callable, Iterator
from math import nan
from typing import Final

from policybridge_core.errors import InvalidError, PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes import Codec, Layout, Outcome, Values, load_serdes
from policybridge_serdes.interactive import (
    MAX_LINE,
    Context,
    Decided,
    End,
    Event,
    FormWanted,
    Header,
    InteractiveReader,
)
from policybridge_server.budget import Budget, PeerBudget
from policybridge_server.engine.session import Session
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.contract import Host
from policybridge_server.transports.conversation import ChannelConversation
from policybridge_server.transports.doors import Wait
from policybridge_server.transports.socket_frames import RECORDED, Report, Resume, error_line, opened_line, parse_hello

_ADVICE: Final = b"\0"
_ERROR: Final = b"\1"
_CHANCE: Final = struct.Struct("<f")


class SocketSession(ChannelConversation[Event]):
    """Serves one connection: its messages are the events of LLVM's stream.

    Args:
        connection: just accepted, non-blocking.
        host: opens the session.
        peer: the budget of the client's user.
        closed: called once, when the connection is closed.

    """

    def __init__(
        self, connection: socket.socket, host: Host, peer: PeerBudget, closed: Callable[["SocketSession"], None]
    ) -> None:
        super().__init__(host, peer, "a session on the socket")
        self._closed = closed
        self._line = bytearray()
        self._reader = InteractiveReader(host.config.limits)
        self._framing = "status"
        self._prefix = _ADVICE
        self._sends_chance = False
        self._half = False
        # The answer to an outcome that goes out with the answer to the end.
        self._owed = b""
        self._budget = Budget(2 * host.config.message_limit, peer.memory)
        # These are set if observations or advice are not plain packed records.
        self._features: Codec | None = None
        self._advice: Codec | None = None
        self._channel: SocketChannel = SocketChannel(connection, host.loop, self)
        self._doors = host.doors

    def begin(self) -> None:
        """Take the first line, which has mostly come with the connection, or wait for it."""
        self.ready(select.EPOLLIN)
        if self._session is None and not (self._unanswered or self._over):
            self._doors.expect(self, Wait.HELLO)

    def _feed(self, data: bytes) -> None:
        if self._over:
            return
        if self._session is None:
            self._greet(data)
        else:
            self._receive_from(self._reader.read(data))

    def _receive_from(self, events: bytes | Iterator[Event]) -> None:
        """Take one observation, or events that are parsed as their turns come."""
        if isinstance(events, bytes):
            self._waiting.append(events)
        else:
            self._coming = events
            if not self._parsed(events):
                return
            if self._half:
                self._wait_for_the_rest()
                self._sent()
        self._advance()

    def _all_parsed(self) -> None:
        if self._half or self._reader.begun:
            self._wait_for_the_rest()
            self._sent()
        # Short lines by the thousand would fill a large read, and take long.
        self._channel.expected = self._reader.lacking

    def _sent(self) -> None:
        self._budget.hold(self._reader.held + len(self._channel.unsent))

    def _wait_for_the_rest(self) -> None:
        """Wait for the rest of a message, if the client has sent a part."""
        doors, half = self._doors, self._reader.begun and not (self._paused or self._over)
        if half and not self._half:
            doors.expect(self, Wait.MESSAGE)
        elif self._half and not half:
            doors.satisfied(self)
        self._half = half

    def _pause(self, paused: bool) -> None:
        super()._pause(paused)
        # While reading is paused, no message can arrive.
        self._wait_for_the_rest()

    def _greet(self, data: bytes) -> None:
        end = data.find(b"\n")
        size = len(self._line) + (len(data) if end < 0 else end)
        if size > MAX_LINE:
            raise TooLargeError(f"the hello line is longer than {MAX_LINE} bytes")
        self._line += data
        if end < 0:
            return
        line = bytes(self._line[:size])
        del self._line[: size + 1]
        self._doors.satisfied(self)
        hello = parse_hello(line)
        if isinstance(hello, Report):
            hello.outcome.check(self._host.config.limits)
            self._hold()
            self._host.opener.engine.report(hello.report, hello.outcome.outcome, self._reported)
            return
        if isinstance(hello, Resume):
            self._resumes = True
        else:
            self._framing = hello.framing
        self._open(hello.reference, hello.session_options)

    def _opened(self, session: Session) -> None:
        if not self._resumes:
            opened = opened_line(session.view.id, session.policy, session.decides, session.forms, session.outside)
            self._channel.send(opened)
        self._channel.takes_reports = session.forms is not None
        self._prefix = b"" if self._framing == "raw" else _ADVICE
        self._sends_chance = self._framing == "chance"
        self._receive_from(self._reader.read(bytes(self._line)))
        self._line.clear()

    def _take(self, message: Event) -> None:
        session = self._session
        if session is None:
            return
        if self._resumes:
            self._take_recorded(session, message)
        elif isinstance(message, bytes):
            if self._features is None:
                self._ask(session, message)
            else:
                self._ask_for(session, self._features.decode, message)
        elif isinstance(message, Decided):
            self._record(session, message)
        elif isinstance(message, Context):
            session.context(message.name)
        elif isinstance(message, Outcome):
            self._report(session, message)
        elif isinstance(message, End):
            self._finish(session)
        elif isinstance(message, FormWanted):
            self._channel.send(self._prefix + session.form(message.digest))
            self._sent()
        else:
            self._bind(session, message)

    def _bind(self, session: Session, header: Header) -> None:
        features, advice = header.signature.features, header.signature.advice
        session.bind(header.signature)
        self._features = None if features.plain else _codec(features)
        self._advice = None if advice.fixed else _codec(header.signature.advice_layout)
        if not (advice.fixed or self._prefix):
            raise InvalidError(f"raw framing needs an advice of fixed size, not {advice}")

    def _reply(self, advice: Values, log_probability: float | None) -> None:
        if self._advice is None:
            frame = self._prefix + advice.tobytes()
        else:
            payload = self._advice.encode(advice)
            frame = b"".join((self._prefix, len(payload).to_bytes(8, "little"), payload))
        if self._sends_chance:
            frame += _CHANCE.pack(nan if log_probability is None else log_probability)
        self._channel.send(frame)
        if self._channel.unsent:
            self._sent()

    def _acknowledge(self) -> None:
        if self._session is None:
            self._channel.send(RECORDED)
            self._linger()
        elif self._prefix and not self._resumes:
            if self._ending:
                # The ledger writes both together, and each answer wakes the client.
                self._owed = _ADVICE + RECORDED
            else:
                self._channel.send(_ADVICE + RECORDED)

    def _ended_well(self) -> None:
        if self._prefix:
            self._channel.send(RECORDED if self._resumes else self._owed + _ADVICE + RECORDED)
        if self._channel.settled:
            self.close()
        else:
            self._linger()

    def fail(self, error: PolicyBridgeError) -> None:
        """Send the error if the framing has room for one, and end the session."""
        if self._over:
            return
        self._host.loop.counters.told("socket", error.status)
        if self._session is None or self._resumes:
            self._channel.send(error_line(error))
        elif self._prefix:
            self._channel.send(self._owed + _ERROR + error_line(error))
        self._linger()

    def _linger(self) -> None:
        # Closing a Unix socket with unread data resets it, and the client may lose the error line: read what is left.
        self._end()
        self._channel.read(True)
        self._channel.finish()
        self._doors.expect(self, Wait.LEAVING)

    def dismiss(self, error: PolicyBridgeError) -> None:
        """End the session because the server waits no longer, and close the connection."""
        self.fail(error)
        # Nothing is unread, so closing at once does not cost the client the error line.
        self.close()

    def drain(self) -> None:
        """Refuse a client that has not asked for a session yet, because the server shuts down."""
        if self._session is None and not self._unanswered:
            self.fail(UnavailableError("the server is shutting down and opens no new session"))

    def _hung_up(self) -> None:
        if self._unanswered and not self._paused:
            # It may have closed its own half alone, and read the answer. If it is gone, the next event says so.
            self._paused = True
            self._pause(True)
        else:
            self.close()

    def close(self) -> None:
        """End the session and close the connection; a second call does nothing."""
        self._channel.close()
        self._end()
        # The session's sink is this object: both would be there until Python looks for cycles.
        self._session = None
        self._doors.satisfied(self)
        self._closed(self)

    def _end(self) -> None:
        super()._end()
        self._line.clear()
        self._reader = InteractiveReader()
        self._budget.hold(0)
        self._budget.close()


def _codec(layout: Layout) -> Codec:
    return load_serdes("bitstream").codec(layout)
