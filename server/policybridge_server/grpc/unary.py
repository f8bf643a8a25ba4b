"""Unary calls without a task: the request is taken, and the reply sent, inside the loop's turns."""

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError
from policybridge_server.budget.work import Work
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.loop import Loop
from policybridge_server.transports.failures import as_error


class UnaryMethod(Protocol):
    """Answers the calls of one method."""

    def start(self, request: bytes, call: "UnaryCall") -> None:
        """Begin to answer a request; `UnaryCall.settle` or one of its parts is called once, now or later.

        Raises:
            PolicyBridgeError: the call fails with it.

        """


class UnaryCall:
    """Serves one stream of a unary method.

    Args:
        stream: the call's stream.
        method: answers the request.
        calls: the server's calls.
        loop: runs the task of a call that needs one.

    """

    __slots__ = ("_begun", "_calls", "_loop", "_method", "_stream", "_task")

    def __init__(self, stream: Stream, method: UnaryMethod, calls: Calls, loop: Loop) -> None:
        self._stream = stream
        self._method = method
        self._calls = calls
        self._loop = loop
        self._begun = False
        self._task: asyncio.Task[None] | None = None

    @property
    def work(self) -> Work:
        """The share of the client's peer in the threads."""
        return self._stream.connection.peer_budget.work

    def message(self, data: bytes) -> None:
        """Take the request; a second one is ignored."""
        if self._begun:
            return
        self._begun = True
        self._calls.add(self)
        try:
            self._method.start(data, self)
        except Exception as error:
            self.fail(as_error(error, "a call"))

    def half_closed(self) -> None:
        """Take the end of the requests.

        Raises:
            InvalidError: there was no request.

        """
        if not self._begun:
            raise InvalidError("the call ended without a request")

    def cancelled(self) -> None:
        """Cancel the call: no client waits for the reply any more."""
        self._calls.discard(self)
        if self._task is not None:
            self._task.cancel()

    def shut(self) -> None:
        """Tell the client that the server ends."""
        self.fail(UnavailableError("the server shut down before the call ended"))

    def reply(self, response: bytes) -> None:
        """Send the response, which ends the call."""
        self._stream.reply(response)
        self._calls.discard(self)

    def settle(self, result: bytes | PolicyBridgeError) -> None:
        """Send the response or the error."""
        if isinstance(result, bytes):
            self.reply(result)
        else:
            self.fail(result)

    def fail(self, error: PolicyBridgeError) -> None:
        """Send the error, which ends the call."""
        self._stream.fail(error)

    def run(self, work: Coroutine[None, None, bytes]) -> None:
        """Reply with the result of ``work``, or fail with its error; for requests not answered in this turn."""
        self._task = self._loop.spawn(self._wait(work))
        # A task that is cancelled before its first step leaves ``work`` unstarted, and Python would warn of it.
        self._task.add_done_callback(lambda _: work.close())

    async def _wait(self, work: Coroutine[None, None, bytes]) -> None:
        try:
            self.reply(await work)
        except Exception as error:
            self._task = None
            self.fail(as_error(error, "a call"))
