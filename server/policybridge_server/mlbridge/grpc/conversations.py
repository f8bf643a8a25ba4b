"""The sessions of one method: who is in which, when they end, and requests that are sent again."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

from policybridge_core.errors import PolicyBridgeError, PolicyFailedError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.engine.engine import Session

Write = Callable[[Values], tuple[bytes, list[Any]]]
"""Makes a reply, and the numbers in it, of advice."""


class Asked:
    """A request until its client has the reply.

    Args:
        request: its bytes, by which it is known when it is sent again.
        ends: whether the session ends with it.

    """

    def __init__(self, request: bytes, ends: bool) -> None:
        self.request = request
        self.ends = ends
        self.result: bytes | PolicyBridgeError | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def reply(self) -> bytes:
        """Wait for the reply, together with those who wait already.

        Raises:
            PolicyBridgeError: there is no advice.

        """
        if self.result is None:
            answered = asyncio.get_running_loop().create_future()
            self._waiting.append(answered)
            await answered
        if isinstance(self.result, bytes):
            return self.result
        raise self.result or PolicyFailedError("the session ended before it answered")

    def settle(self, result: bytes | PolicyBridgeError) -> None:
        """Let everybody go on who waits."""
        self.result = result
        for answered in self._waiting:
            if not answered.done():
                answered.set_result(None)


class Conversation:
    """One session of a foreign client; the sink of its answers.

    Args:
        end_advice: the advice that ends it; ``None`` for none.
        ended: told once that it is over.

    Attributes:
        over: whether it has ended.
        used: when it was last asked, by the loop's clock.

    """

    def __init__(self, end_advice: list[Any] | None, ended: Callable[["Conversation"], None]) -> None:
        self.over = False
        self._ended = ended
        self.used = 0.0
        self._end_advice = end_advice
        self._session: Session | None = None
        self._write: Write | None = None
        self._asked: deque[Asked] = deque()
        self._undelivered: list[Asked] = []

    def begin(self, session: Session, write: Write) -> None:
        """Take the session, bound, and what writes its replies."""
        self._session, self._write = session, write

    @property
    def busy(self) -> bool:
        """Whether a request waits for its advice."""
        return bool(self._asked)

    def again(self, request: bytes) -> Asked | None:
        """Give what is asked by the same bytes and was not delivered: its client has given up waiting and resends."""
        for asked in self._undelivered:
            if asked.request == request:
                return asked
        return None

    def ask(self, request: bytes, row: Row, context: str | None, ends: bool) -> Asked:
        """Submit an observation; what was never fetched before it is dropped."""
        if self._session is None:
            raise PolicyFailedError("the session is over")
        if context is not None:
            self._session.context(context)
        asked = Asked(request, ends)
        self._undelivered = [each for each in self._undelivered if each.result is None]
        self._undelivered.append(asked)
        self._asked.append(asked)
        self._session.submit(row)
        return asked

    def delivered(self, asked: Asked) -> None:
        """Forget a request whose call has got its reply."""
        if asked in self._undelivered:
            self._undelivered.remove(asked)

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Write the reply; the session ends where that was its last."""
        asked = self._asked.popleft()
        try:
            if self._write is None:
                raise PolicyFailedError("the session is over")
            reply, numbers = self._write(advice)
        except Exception as error:
            failure = error if isinstance(error, PolicyBridgeError) else PolicyFailedError(f"no reply: {error!r}")
            self._settle(asked, failure)
            return
        asked.settle(reply)
        if asked.ends or (self._end_advice is not None and numbers == self._end_advice):
            self.end()

    def fail(self, error: PolicyBridgeError) -> None:
        """Pass on that there is no advice; the session is over."""
        self._settle(self._asked.popleft(), error)

    def _settle(self, asked: Asked, error: PolicyBridgeError) -> None:
        asked.settle(error)
        self.end()

    def end(self) -> None:
        """End the session; twice is once. What was asked is still answered."""
        self.over = True
        session, self._session = self._session, None
        if session is not None:
            session.close()
            self._ended(self)

    def shut(self) -> None:
        """End it because the server does."""
        self.end()


class Conversations:
    """Those of one method, by their keys. For the loop thread.

    Args:
        idle_timeout: seconds after which one that is not asked ends.
        most: for one more, that which has been idle for longest ends.

    """

    def __init__(self, idle_timeout: float, most: int) -> None:
        self._idle_timeout = idle_timeout
        self._most = most
        self._held: OrderedDict[Hashable, Conversation] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def get(self, key: Hashable) -> Conversation | None:
        """Give the conversation of ``key``, which counts as used now."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            found.used = asyncio.get_running_loop().time()
        return found

    def put(self, key: Hashable, conversation: Conversation) -> None:
        """Hold one more, in the place of the one that ``key`` had."""
        self.drop(key)
        while len(self._held) >= self._most:
            self._held.popitem(last=False)[1].end()
        loop = asyncio.get_running_loop()
        conversation.used = loop.time()
        self._held[key] = conversation
        if self._timer is None:
            self._timer = loop.call_later(self._idle_timeout, self._sweep)

    def drop(self, key: Hashable) -> None:
        """End the conversation of ``key``, if there is one."""
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
