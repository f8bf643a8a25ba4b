"""PolicyService.Session inside the loop's turns, without a task for each call."""

from google.protobuf.message import DecodeError

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_serdes import Outcome, Values
from policybridge_serdes.messages import options_from_pb, reference_from_pb
from policybridge_server.engine.engine import Session
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.grpc.session_messages import RECORDED, Observation, SessionMessages
from policybridge_server.transports.contract import Host
from policybridge_server.transports.conversation import Conversation


class SessionCall(Conversation[bytes | None]):
    """Serves one stream: its messages are those of the client, and ``None`` is the end of them.

    Args:
        stream: of the call.
        host: opens the session.
        calls: the running calls, this one among them.

    """

    def __init__(self, stream: Stream, host: Host, calls: Calls) -> None:
        super().__init__(host, "a session over gRPC")
        self._stream = stream
        self._calls = calls
        self._open_message = pb.Open()
        self._messages: SessionMessages | None = None
        calls.add(self)

    def message(self, data: bytes) -> None:
        """Take a message."""
        self._receive((data,))

    def half_closed(self) -> None:
        """Take the end of the messages: the session ends when all of them are answered."""
        self._receive((None,))

    def cancelled(self) -> None:
        """End the session without an answer."""
        self._end()

    def shut(self) -> None:
        """End the session because the server shuts down."""
        self.fail(UnavailableError("the server shut down before the session ended"))

    def _take(self, message: bytes | None) -> None:
        if message is None:
            self._finish()
            return
        try:
            request = pb.SessionRequest.FromString(message)
        except DecodeError as error:
            raise InvalidError(f"the message is no SessionRequest: {error}") from error
        if self._messages is None or self._session is None:
            self._begin(request)
            return
        asked = self._messages.read(request)
        if isinstance(asked, Observation):
            self._ask(self._session, asked.row)
        elif isinstance(asked, Outcome):
            self._report(self._session, asked)
        elif asked is not None:
            self._stream.send(asked.SerializeToString())

    def _begin(self, request: pb.SessionRequest) -> None:
        if request.WhichOneof("message") != "open":
            raise PreconditionError("a session's first message is `open`")
        self._open_message = request.open
        self._open(reference_from_pb(request.open.policy), options_from_pb(request.open))

    def _opened(self, session: Session) -> None:
        self._messages = SessionMessages(session, self._open_message, self._host.config.max_observation_bytes)
        self._stream.send(self._messages.opened.SerializeToString())

    def _reply(self, advice: Values, log_probability: float | None) -> None:
        if self._messages is not None:
            self._stream.send(self._messages.decision(advice, log_probability).SerializeToString())

    def _acknowledge(self) -> None:
        self._stream.send(RECORDED.SerializeToString())

    def _pause(self, paused: bool) -> None:
        self._stream.hold(paused)

    def _finish(self) -> None:
        if self._session is None:
            raise PreconditionError("a session's first message is `open`")
        if self._session.recorded:
            # The call's OK tells the client that the session is recorded to its end.
            self._unanswered = True
            self._session.report(None, self._finished)
        else:
            self._finished(None)

    def _finished(self, error: PolicyBridgeError | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self._stream.finish(0)
        self._end()

    def fail(self, error: PolicyBridgeError) -> None:
        """End the call with the error's status."""
        self._stream.fail(error)
        self._end()

    def _end(self) -> None:
        super()._end()
        self._calls.discard(self)
