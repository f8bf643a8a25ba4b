"""One connection of the Unix socket: hello, then LLVM's stream in and framed advice out."""

import asyncio
import logging
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from policybridge_serdes import Codec, PolicyReference, SessionOptions, Values, load_serdes
from policybridge_serdes.errors import InvalidError, PolicyBridgeError, TooLargeError, UnavailableError, UnknownError
from policybridge_serdes.interactive import MAX_LINE, Context, Event, Header, InteractiveReader

from policybridge_server.engine.engine import Session
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)

_READ: Final = 1 << 18
_ADVICE: Final = b"\0"
_ERROR: Final = b"\1"


class _Hello(msgspec.Struct, forbid_unknown_fields=True):
    policybridge: Literal[1]
    policy: str
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    alias: str | None = None
    framing: Literal["status", "raw"] = "status"
    options: dict[str, str] = {}
    labels: dict[str, str] = {}


_HELLO = msgspec.json.Decoder(_Hello)


class SocketSession:
    """Serves one connection inside the loop's turns; also the sink of its session's answers.

    An observation is handed over only when the one before it is answered, so that answers keep their order whatever
    thread makes them, and a client that never reads costs one buffer.
    """

    def __init__(
        self, connection: socket.socket, host: Host, gone: Callable[["SocketSession"], None], idle: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._fd = connection.fileno()
        self._host = host
        self._tell_gone = gone
        self._tell_idle = idle
        self._take: Callable[[bytes], None] = self._hello
        self._line = b""
        self._reader = InteractiveReader(host.config.max_observation_bytes)
        self._events: deque[Event] = deque()
        self._asked = False
        self._listening = True
        self._unsent = b""
        self._prefix = _ADVICE
        self._session: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        # Set where observations or advice are not plain packed records.
        self._features: Codec | None = None
        self._advice: Codec | None = None
        host.turns.watch(self._fd, self)

    def ready(self, events: int) -> None:
        """Take what has arrived; whatever goes wrong ends this session and no other."""
        try:
            if events & select.EPOLLOUT:
                self._send(b"")
            if events & select.EPOLLIN:
                self._receive()
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.close()
        except PolicyBridgeError as error:
            self.fail(error)
        except Exception as error:
            _LOG.exception("a session on the socket failed")
            self.fail(UnknownError(f"the server failed: {error!r}"))

    def _receive(self) -> None:
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def _hello(self, data: bytes) -> None:
        self._line += data
        line, newline, rest = self._line.partition(b"\n")
        if len(line) > MAX_LINE:
            raise TooLargeError(f"the hello line is longer than {MAX_LINE} bytes")
        if not newline:
            return
        try:
            hello = _HELLO.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f"the hello line is malformed: {error}; see proto/SOCKET.md") from error
        self._line = rest
        self._listen(False)
        self._opening = asyncio.get_running_loop().create_task(self._open(hello))
        self._host.turns.leave()

    async def _open(self, hello: _Hello) -> None:
        try:
            reference = PolicyReference(hello.policy, hello.version, hello.alias)
            options = SessionOptions(options=hello.options, labels=hello.labels)
            session = await self._host.gate.open(reference, options, self)
        except PolicyBridgeError as error:
            self._end(_error_line(error))
            return
        if self._fd < 0:
            session.close()
            return
        self._session, self._take = session, self._stream
        self._prefix = _ADVICE if hello.framing == "status" else b""
        self._send(_opened_line(session))
        self._listen(True)
        rest, self._line = self._line, b""
        self._guarded(lambda: self._stream(rest))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except PolicyBridgeError as error:
            self.fail(error)

    def _stream(self, data: bytes) -> None:
        self._events.extend(self._reader.feed(data))
        self._advance()

    def _advance(self) -> None:
        while self._events and not self._asked:
            event = self._events.popleft()
            if type(event) is bytes:
                self._submit(event)
            else:
                self._change(event)
        if bool(self._events) == self._listening:
            self._listen(not self._events)

    def _submit(self, payload: bytes) -> None:
        session = self._session
        if session is None:
            return
        row = payload if self._features is None else self._features.decode(payload)
        self._asked = True
        session.submit(row)

    def _change(self, event: Header | Context | bytes) -> None:
        session = self._session
        if session is None:
            return
        if isinstance(event, Context):
            session.view.context = event.name
        elif isinstance(event, Header):
            self._bind(session, event)

    def _bind(self, session: Session, header: Header) -> None:
        signature = header.signature
        session.bind(signature)
        serdes = load_serdes("bitstream")
        has_bool = any(spec.type.value == "bool" for spec in signature.features.specs)
        self._features = serdes.codec(signature.features) if has_bool or not signature.features.fixed else None
        self._advice = None if signature.advice.fixed else serdes.codec(signature.advice_layout)
        if self._advice is not None and not self._prefix:
            raise InvalidError(f"raw framing cannot carry the advice {signature.advice}, whose size varies")

    def answer(self, advice: Values) -> None:
        """Send the advice, and hand over the next observation if it is there already."""
        if self._advice is None:
            self._send(self._prefix + advice.tobytes())
        else:
            payload = self._advice.encode(advice)
            self._send(b"".join((self._prefix, len(payload).to_bytes(8, "little"), payload)))
        self._asked = False
        if self._events:
            self._guarded(self._advance)

    def fail(self, error: PolicyBridgeError) -> None:
        """Send the error where the framing has room for one, and end the session."""
        if self._take == self._hello:
            self._end(_error_line(error))
        else:
            self._end(_ERROR + _error_line(error) if self._prefix else b"")

    def _end(self, last: bytes) -> None:
        if self._fd >= 0:
            self._send(last)
            self.close()

    def drain(self) -> None:
        """Refuse a connection that has not opened a session yet: the server shuts down."""
        if self._session is None and self._opening is None:
            self.fail(UnavailableError("the server is shutting down and opens no new session"))

    def close(self) -> None:
        """End the session and close the connection; twice is once."""
        if self._fd < 0:
            return
        self._host.turns.unwatch(self._fd)
        self._fd = -1
        self._connection.close()
        self._events.clear()
        if self._session is not None:
            self._session.close()
        self._tell_gone(self)
        self._tell_idle()
        self._host.turns.leave()

    def _send(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if self._unsent:
            data = self._unsent + data
        try:
            sent = self._connection.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent != len(data) or self._unsent:
            self._unsent = data[sent:]
            self._watch()

    def _listen(self, wanted: bool) -> None:
        self._listening = wanted
        self._watch()

    def _watch(self) -> None:
        if self._fd >= 0:
            reading = select.EPOLLIN if self._listening else 0
            self._host.turns.rewatch(self._fd, reading | (select.EPOLLOUT if self._unsent else 0))


def _opened_line(session: Session) -> bytes:
    policy = session.policy
    opened: dict[str, Any] = {"session": session.view.id, "policy": policy.name, "version": policy.version}
    return msgspec.json.encode(opened | {"digest": policy.digest}) + b"\n"


def _error_line(error: PolicyBridgeError) -> bytes:
    return msgspec.json.encode({"error": {"status": int(error.status), "message": str(error)}}) + b"\n"
