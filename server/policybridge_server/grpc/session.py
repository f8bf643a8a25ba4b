"""PolicyService.Session without a task: its messages are taken, and its answers sent, inside the loop's turns."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from google.protobuf.message import DecodeError

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_core.errors import (
    InvalidError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from policybridge_serdes import Outcome, Values
from policybridge_server.engine.engine import Session
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.grpc.messages import options_from_pb, reference_from_pb
from policybridge_server.grpc.session_messages import RECORDED, Asked, Steps
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)


class SessionCall:
    """Serves one stream; also the sink of its session's answers.

    A message is taken only when the one before it is answered, so that answers keep their order whatever thread makes
    them.

    Args:
        stream: of the call.
        host: opens the session.
        calls: those of the port.

    """

    def __init__(self, stream: Stream, host: Host, calls: Calls) -> None:
        self._stream = stream
        self._host = host
        self._calls = calls
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._half_closed = False
        self._session: Session | None = None
        self._steps: Steps | None = None
        self._opening: asyncio.Task[None] | None = None
        calls.began(self)

    def message(self, data: bytes) -> None:
        """Take a message, or let it wait for the answers before it."""
        if self._busy:
            self._waiting.append(data)
            self._stream.hold(True)
        else:
            self._guarded(partial(self._take, data))

    def half_closed(self) -> None:
        """End the session, after what waits."""
        self._half_closed = True
        if not self._busy:
            self._guarded(self._close)

    def cancelled(self) -> None:
        """Let go of everything; nobody waits for an answer."""
        self._end()

    def shut(self) -> None:
        """Tell the client that the server ends."""
        self.fail(UnavailableError("the server shut down before the session ended"))

    def _take(self, data: bytes) -> None:
        try:
            request = pb.SessionRequest.FromString(data)
        except DecodeError as error:
            raise InvalidError(f"the message is no SessionRequest: {error}") from error
        if self._steps is None or self._session is None:
            self._begin(request)
            return
        taken = self._steps.take(request)
        if isinstance(taken, Asked):
            self._busy = True
            self._session.submit(taken.row)
        elif isinstance(taken, Outcome):
            self._busy = True
            self._session.report(taken, self._recorded)
        elif taken is not None:
            self._stream.send(taken.SerializeToString())

    def _begin(self, request: pb.SessionRequest) -> None:
        if request.WhichOneof("message") != "open":
            raise PreconditionError("a session's first message is `open`")
        self._busy = True
        self._opening = self._host.loop.spawn(self._open(request.open))

    async def _open(self, message: pb.Open) -> None:
        try:
            self._session = await self._host.opener.open(
                reference_from_pb(message.policy), options_from_pb(message), self
            )
            self._steps = Steps(self._session, message, self._host.config.max_observation_bytes)
        except Exception as error:
            self._break(error)
            return
        self._stream.send(self._steps.opened.SerializeToString())
        self._go_on()

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Send the decision, and take what waits."""
        if self._steps is not None:
            self._stream.send(self._steps.answered(advice, log_probability).SerializeToString())
        self._go_on()

    def _recorded(self, error: PolicyBridgeError | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self._stream.send(RECORDED.SerializeToString())
        self._go_on()

    def _go_on(self) -> None:
        self._busy = False
        if self._waiting or self._half_closed:
            self._guarded(self._take_waiting)

    def _take_waiting(self) -> None:
        while self._waiting and not self._busy:
            self._take(self._waiting.popleft())
        if not self._waiting:
            self._stream.hold(False)
            if self._half_closed and not self._busy:
                self._close()

    def _close(self) -> None:
        if self._session is None:
            raise PreconditionError("a session's first message is `open`")
        if self._session.recorded:
            # The call's OK acknowledges the session's end.
            self._busy = True
            self._session.report(None, self._closed)
        else:
            self._closed(None)

    def _closed(self, error: PolicyBridgeError | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self._stream.finish(0)
        self._end()

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not isinstance(error, PolicyBridgeError):
            _LOG.error("a session over gRPC failed", exc_info=error)
            error = UnknownError(f"the server failed: {error!r}")
        self.fail(error)

    def fail(self, error: PolicyBridgeError) -> None:
        """Send the error, which ends the session."""
        self._stream.fail(error)
        self._end()

    def _end(self) -> None:
        self._waiting.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._session is not None:
            self._session.close()
        self._calls.ended(self)
