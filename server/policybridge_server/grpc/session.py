"""PolicyService.Session inside the loop's turns, without a task for each call."""

from dataclasses import replace
from typing import NamedTuple

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_serdes import Outcome, Values
from policybridge_serdes.interactive import Decided, Event
from policybridge_serdes.limits import LARGE, Buffer
from policybridge_serdes.messages import options_from_pb, reference_from_pb
from policybridge_serdes.protobuf import parse
from policybridge_serdes.protobuf_fields import divide, owned
from policybridge_server.budget import PeerBudget
from policybridge_server.engine.session import Session
from policybridge_server.engine.tracing import TRACEPARENT
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.grpc.session_messages import RECORDED, Observation, SessionMessages
from policybridge_server.transports.contract import Host
from policybridge_server.transports.conversation import Conversation
from policybridge_server.transports.doors import Wait
from policybridge_server.transports.record_stream import RecordStream


class Caller(NamedTuple):
    """A client.

    Attributes:
        counts_for: the host that its sessions count for; see `client_of`.
        reporter: whose word they are; see `Access.reporter`.
        budget: of all its connections.

    """

    counts_for: str
    reporter: str
    budget: PeerBudget


class SessionCall(Conversation[Event | None]):
    """Serves one stream: its messages are those of the client, and ``None`` is the end of them.

    A message that is not bytes is an event of the record of an earlier session.

    Args:
        stream: the call's stream.
        host: opens the session.
        calls: the running calls, including this one.
        caller: the client.
        traceparent: the trace context of the call; a label of that name overrides it.

    """

    def __init__(self, stream: Stream, host: Host, calls: Calls, caller: Caller, traceparent: str = "") -> None:
        super().__init__(host, caller.budget, "a session over gRPC")
        self._caller = caller
        self._stream = stream
        self._traceparent = traceparent
        self._calls = calls
        self._open_message = pb.Open()
        self._messages: SessionMessages | None = None
        self._taken = 0
        self._record_stream: RecordStream | None = None
        calls.add(self)
        host.doors.expect(self, Wait.OPEN)

    @property
    def _client(self) -> str:
        return self._caller.counts_for

    @property
    def _reporter(self) -> str:
        return self._caller.reporter

    def message(self, data: bytes) -> None:
        """Take a message."""
        self._receive((data,))

    def half_closed(self) -> None:
        """Take the end of the messages: the session ends when all of them are answered."""
        self._receive((None,))

    def cancelled(self) -> None:
        """End the session without an answer."""
        self._end()

    def dismiss(self, error: PolicyBridgeError) -> None:
        """End the call because its first message does not come."""
        self.fail(error)

    def shut(self) -> None:
        """End the session because the server shuts down."""
        self.fail(UnavailableError("the server shut down before the session ended"))

    def _take(self, message: Event | None) -> None:
        if message is None:
            self._half_close()
            return
        if isinstance(message, bytes):
            self._take_request(message)
        elif self._session is not None:
            self._take_recorded(self._session, message)

    def _take_request(self, message: bytes) -> None:
        request, values = _read(message)
        self._release(len(message))
        if request.WhichOneof("message") == "record" or self._record_stream is not None:
            self._take_piece(request)
            return
        if self._messages is None or self._session is None:
            self._host.doors.satisfied(self)
            self._begin(request)
            return
        if request.WhichOneof("message") == "form":
            for part in self._messages.form(request.form):
                self._stream.send(part.SerializeToString())
            return
        asked = self._messages.read(request, values)
        if isinstance(asked, Observation):
            self._ask_for(self._session, asked.decode, asked.values)
        elif isinstance(asked, Outcome):
            self._report(self._session, asked)
        elif isinstance(asked, Decided):
            self._record(self._session, asked)
        elif asked is not None:
            self._stream.send(asked.SerializeToString())

    def _release(self, taken: int) -> None:
        """Let the stream count the message no longer that was taken before."""
        if self._taken:
            self._stream.release(self._taken)
        self._taken = taken

    def _begin(self, request: pb.SessionRequest) -> None:
        if request.WhichOneof("message") != "open":
            raise PreconditionError("a session's first message is `open`")
        self._open_message = request.open
        options = options_from_pb(request.open)
        if self._traceparent:
            options = replace(options, labels={TRACEPARENT: self._traceparent, **options.labels})
        self._open(reference_from_pb(request.open.policy), options)

    def _take_piece(self, request: pb.SessionRequest) -> None:
        """Take a piece of the record of an earlier session."""
        stream = self._record_stream
        if stream is None:
            if self._session is not None:
                raise PreconditionError("a record is sent instead of `open`")
            stream = self._record_stream = RecordStream(self._host, self._caller.budget)
        if request.WhichOneof("message") != "record":
            raise PreconditionError("after a `record` come only more of its bytes")
        data = request.record
        if not stream.begun:
            resume, data = stream.first(data)
            if resume is None:
                return
            self._host.doors.satisfied(self)
            self._resumes = True
            self._open(resume.reference, resume.session_options)
        self._waiting.extendleft(reversed(stream.events(data)))

    def _opened(self, session: Session) -> None:
        if self._resumes:
            return
        self._messages = SessionMessages(session, self._open_message, self._host.config.limits)
        self._stream.send(self._messages.opened.SerializeToString())

    def _reply(self, advice: Values, log_probability: float | None) -> None:
        if self._messages is not None:
            self._release(0)
            data = self._messages.decision(advice, log_probability)
            if not self._stream.keep(len(data)):
                self._messages.forget()
            self._stream.send(data)

    def _acknowledge(self) -> None:
        if not self._resumes:
            self._stream.send(RECORDED.SerializeToString())

    def _pause(self, paused: bool) -> None:
        self._stream.hold(paused)

    def _half_close(self) -> None:
        if self._record_stream is not None:
            raise InvalidError("the record breaks off before its end")
        if self._session is None:
            raise PreconditionError("a session's first message is `open`")
        # The call's OK tells the client that the session is recorded, its end included.
        self._finish(self._session)

    def _ended_well(self) -> None:
        self._stream.finish(0)
        self._end()

    def fail(self, error: PolicyBridgeError) -> None:
        """End the call with the error's status."""
        self._stream.fail(error)
        self._end()

    def _end(self) -> None:
        super()._end()
        # The session refers to this call, its sink: without this both would wait for the garbage collector.
        self._session = self._messages = None
        if self._record_stream is not None:
            self._record_stream.close()
        self._host.doors.satisfied(self)
        self._calls.discard(self)


def _read(message: bytes) -> tuple[pb.SessionRequest, Buffer | None]:
    """Read a message; the values of a large observation apart, because the parser would copy them."""
    if len(message) <= LARGE:
        return parse(pb.SessionRequest, message), None
    rest, observations = divide(pb.SessionRequest.DESCRIPTOR, message, (pb.SessionRequest.OBSERVATION_FIELD_NUMBER,))
    request = parse(pb.SessionRequest, rest)
    if not observations:
        return request, None
    if len(observations) > 1 or request.WhichOneof("message"):
        raise InvalidError("a message of a session is one of its kinds, and an observation only once")
    rest, values = divide(pb.Observation.DESCRIPTOR, observations[0][1], (pb.Observation.VALUES_FIELD_NUMBER,))
    request.observation.CopyFrom(parse(pb.Observation, rest))
    # Of a repeated field the last one counts.
    return request, next(iter(owned([part for _, part in values[-1:]], len(message))), None)


def client_of(peer: str) -> str:
    """Return the client of a connection from ``peer``: a host, or all of this machine's Unix sockets together."""
    return "this machine" if peer.startswith("unix:") else peer.rpartition(":")[0]
