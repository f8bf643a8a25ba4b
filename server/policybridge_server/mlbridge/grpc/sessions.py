"""The sessions of one method: which client has which, when they end, and requests that are sent again."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

from policybridge_core.errors import PolicyBridgeError, PolicyFailedError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.engine.session import Session
from policybridge_server.transports.failures import as_error

_LOG = logging.getLogger(__name__)

Write = Callable[[Values], tuple[bytes, list[Any]]]
"""Makes of advice the reply's bytes, and gives the numbers in it."""


class PendingRequest:
    """A request whose reply has not reached its client yet.

    Args:
        data: its bytes. A request with the same bytes is the same one, sent again.
        ends: whether the session ends with it.

    """

    def __init__(self, data: bytes, ends: bool) -> None:
        self.data = data
        self.ends = ends
        self.result: asyncio.Future[bytes | PolicyBridgeError] = asyncio.get_running_loop().create_future()

    async def reply(self) -> bytes:
        """Wait for the reply; several calls may wait for the same one.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        # A cancelled call must not cancel the result, because other calls may wait for it.
        result = await asyncio.shield(self.result)
        if isinstance(result, bytes):
            return result
        raise result


class ForeignSession:
    """One session of a foreign client; the sink of its answers.

    Args:
        end_advice: the advice with which the session ends; ``None`` for none.
        ended: called once, when the session has ended.

    Attributes:
        over: whether the session has ended.
        used: when the latest request came, by the loop's clock, in seconds.

    """

    def __init__(self, end_advice: list[Any] | None, ended: Callable[["ForeignSession"], None]) -> None:
        self.over = False
        self.used = 0.0
        self._ended = ended
        self._end_advice = end_advice
        self._session: Session | None = None
        self._write: Write | None = None
        self._unanswered: deque[PendingRequest] = deque()
        self._undelivered: dict[bytes, PendingRequest] = {}

    def begin(self, session: Session, write: Write) -> None:
        """Take the engine's bound session, and the writer of its replies."""
        self._session, self._write = session, write

    @property
    def busy(self) -> bool:
        """Whether a request waits for its advice."""
        return bool(self._unanswered)

    def find(self, data: bytes) -> PendingRequest | None:
        """Give the pending request with these bytes: its client stopped waiting and sends it again."""
        return self._undelivered.get(data)

    def ask(self, data: bytes, row: Row, context: str | None, ends: bool) -> PendingRequest:
        """Submit an observation. Earlier replies that no call has fetched are dropped."""
        if self._session is None:
            raise PolicyFailedError("the session is over")
        if context is not None:
            self._session.context(context)
        request = PendingRequest(data, ends)
        self._undelivered = {key: each for key, each in self._undelivered.items() if not each.result.done()}
        self._undelivered[data] = request
        self._unanswered.append(request)
        self._session.submit(row)
        return request

    def delivered(self, request: PendingRequest) -> None:
        """Forget a request whose call has its reply."""
        if self._undelivered.get(request.data) is request:
            del self._undelivered[request.data]

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Write the reply; the session ends if the request or the advice ends it."""
        request = self._unanswered.popleft()
        try:
            if self._write is None:
                raise PolicyFailedError("the session is over")
            reply, numbers = self._write(advice)
        except Exception as error:
            self._fail(request, as_error(error, "writing a reply for ML-Compiler-Bridge"))
            return
        if request.ends or (self._end_advice is not None and numbers == self._end_advice):
            self._finish(request, reply)
        else:
            request.result.set_result(reply)

    def _finish(self, request: PendingRequest, reply: bytes) -> None:
        """End the session, and reply when the ledger holds its end. Reply with the advice even if the ledger fails."""
        session, self._session, self.over = self._session, None, True

        def finished(error: PolicyBridgeError | None) -> None:
            if error is not None:
                _LOG.warning("the ledger has no record of the end of an ML-Compiler-Bridge session: %s", error)
            request.result.set_result(reply)
            self._ended(self)

        if session is not None:
            session.finish(finished)

    def fail(self, error: PolicyBridgeError) -> None:
        """Give the error to the request, and end the session."""
        self._fail(self._unanswered.popleft(), error)

    def _fail(self, request: PendingRequest, error: PolicyBridgeError) -> None:
        request.result.set_result(error)
        self.end()

    def end(self) -> None:
        """End the session; a second call does nothing. Requests that wait are still answered."""
        self.over = True
        session, self._session = self._session, None
        if session is not None:
            session.close()
            self._ended(self)

    shut = end


class ForeignSessions:
    """The sessions of one method, by their keys. For the loop thread.

    Args:
        idle_timeout: seconds without a request after which a session ends.
        most: number of sessions; for one more, the session that has been idle for longest ends.

    """

    def __init__(self, idle_timeout: float, most: int) -> None:
        self._idle_timeout = idle_timeout
        self._most = most
        self._held: OrderedDict[Hashable, ForeignSession] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def get(self, key: Hashable) -> ForeignSession | None:
        """Give the session of ``key``, which counts as used now."""
        session = self._held.get(key)
        if session is not None:
            self._held.move_to_end(key)
            session.used = asyncio.get_running_loop().time()
        return session

    def put(self, key: Hashable, session: ForeignSession) -> None:
        """Hold ``session`` under ``key``; the session that was there ends."""
        self.drop(key)
        while len(self._held) >= self._most:
            self._held.popitem(last=False)[1].end()
        loop = asyncio.get_running_loop()
        session.used = loop.time()
        self._held[key] = session
        if self._timer is None:
            self._timer = loop.call_later(self._idle_timeout, self._sweep)

    def drop(self, key: Hashable) -> None:
        """End the session of ``key``, if there is one."""
        dropped = self._held.pop(key, None)
        if dropped is not None:
            dropped.end()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        while self._held:
            key, oldest = next(iter(self._held.items()))
            if oldest.busy:
                self.get(key)
                oldest.used = now
            left = oldest.used + self._idle_timeout - now
            if left > 0:
                self._timer = loop.call_later(left, self._sweep)
                return
            self.drop(key)
