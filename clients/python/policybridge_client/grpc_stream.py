"""One Session RPC, driven by the thread that asks for decisions."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, cast

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client.grpc_channel import Metadata, RefusedError, was_refused
from policybridge_core.errors import (
    DeadlineError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    error_from_status,
)
from policybridge_core.lacking import lacking

_NO_REASON: Final = "no reason given"

_OWN: Final = (_NO_REASON, "Stream removed", "Received http2 header", "No status received", "Exception deserializing")
"""Beginnings of details that are gRPC's own and do not name the server."""

_CLOSING: Final = 1.0
"""Seconds to wait for the server's end of a stream that the client has half-closed."""

_WAITING: Final = 64
"""Requests of `Stream.tell` that wait for a server that takes none."""

_LOOK: Final = 0.001
"""Seconds between two looks at whether it takes one."""


class Stream:
    """The Session RPC, one request and one response at a time.

    gRPC's own deadline limits the whole call, but each wait needs a deadline of its own. A thread sleeps until the
    deadline of the current wait and then cancels the call; a decision pays nothing for it.

    Args:
        stub: of the server.
        target: names the server in messages.
        timeout: limit of each exchange, in seconds.
        metadata: of the call.
        due: when the response to `open` must be there, by the monotonic clock; by default after ``timeout``.

    """

    def __init__(
        self, stub: PolicyServiceStub, target: str, timeout: float, metadata: Metadata = (), due: float | None = None
    ) -> None:
        self._target = target
        self._timeout = timeout
        # The requests come from a queue's iterator. With an echo over a Unix socket its p50 was 207–256 µs, that of
        # grpc.aio on a loop of its own 260–290 µs (measured). It also works if the caller runs an event loop.
        self._requests: SimpleQueue[pb.SessionRequest | None] = SimpleQueue()
        self._call: Any = stub.Session(iter(self._requests.get, None), metadata=metadata)
        self._responses = cast("Iterator[pb.SessionResponse]", self._call)
        self._over: str | None = None
        self._deadline = due
        self._due = monotonic() + timeout if due is None else due
        self._late = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="policybridge-deadline", daemon=True).start()

    def send(self, request: pb.SessionRequest) -> None:
        """Send a request that has no response; do nothing if the session is over."""
        if self._over is None:
            self._requests.put(request)

    def tell(self, request: pb.SessionRequest) -> None:
        """Send a request that has no response, while the server takes them.

        Raises:
            PolicyBridgeError: the session is over, the server has ended it, or it takes no request in time.

        """
        self._check()
        due = monotonic() + self._timeout
        while self._requests.qsize() >= _WAITING and self._call.is_active():
            if monotonic() > due:
                raise self.fail(self._no_answer())
            self._ended.wait(_LOOK)
        if not self._call.is_active():
            self._await_end(0)
            raise UnavailableError(f"the server at {self._target} ended the session")
        self._requests.put(request)

    def open(self, request: pb.SessionRequest) -> pb.SessionResponse:
        """Send the first request, and wait for its response."""
        self._requests.put(request)
        return self.next()

    def ask(self, request: pb.SessionRequest, *, last: bool = False) -> pb.SessionResponse:
        """Send a request and wait for its response; half-close the stream behind the last one."""
        self._check()
        self._requests.put(request)
        if last:
            self._requests.put(None)
        self._due = monotonic() + self._timeout
        return self.next()

    def next(self) -> pb.SessionResponse:
        """Wait for a response; `ask` waits for the first one to its request, and all have its time-out together."""
        if monotonic() > self._due:
            raise self.fail(self._no_answer())
        self._deadline = self._due
        try:
            return next(self._responses)
        except grpc.RpcError as failure:
            raise self._end(self._error(failure)) from failure
        except StopIteration:
            raise self._end(UnavailableError(f"the server at {self._target} ended the session")) from None
        except BaseException as error:
            # A signal interrupted the wait. The late response would look like the response to the next request.
            self._call.cancel()
            self._end(UnavailableError(repr(error)))
            raise
        finally:
            self._deadline = None

    def close(self) -> None:
        """Half-close the stream, which ends the session. A second call does nothing."""
        if self._over is not None:
            return
        self._requests.put(None)
        with suppress(grpc.FutureTimeoutError, grpc.FutureCancelledError):
            # Wait for the server to end the stream: closing the channel now would cancel the call.
            self._call.exception(min(self._timeout, _CLOSING))
        # A server that does not end it would hold the call as long as the channel.
        self._call.cancel()
        self._end(UnavailableError("it was closed"))

    def finish(self, longest: float) -> None:
        """Half-close the stream, and wait for its OK.

        Raises:
            PolicyBridgeError: it has another status, or does not end in time.

        """
        self._check()
        self._requests.put(None)
        self._await_end(min(self._timeout, longest))

    def conclude(self) -> None:
        """Wait for the stream's OK behind the response to the last request; both have one time-out."""
        self._await_end(max(0.0, self._due - monotonic()))

    def _check(self) -> None:
        if self._over is not None:
            raise PreconditionError(f"the session is over: {self._over}")

    def _await_end(self, seconds: float) -> None:
        try:
            failure = self._call.exception(seconds)
        except grpc.FutureTimeoutError:
            raise self.fail(DeadlineError(f"the server at {self._target} does not end the session")) from None
        except grpc.FutureCancelledError:
            raise self._end(UnavailableError(f"the server at {self._target} ended the session")) from None
        if failure is not None:
            raise self._end(self._error(failure))
        self._end(UnavailableError("it was closed"))

    def fail(self, error: PolicyBridgeError) -> PolicyBridgeError:
        """End the session at once: the server's answer was wrong, and more of them are not waited for."""
        self._call.cancel()
        return self._end(error)

    def _end(self, error: PolicyBridgeError) -> PolicyBridgeError:
        self._over = str(error)
        self._ended.set()
        self._requests.put(None)
        return error

    def _error(self, failure: grpc.RpcError) -> PolicyBridgeError:
        return self._no_answer() if self._late else error_of(failure, self._target)

    def _no_answer(self) -> DeadlineError:
        return DeadlineError(f"no answer from the server at {self._target} within {self._timeout:g} s")

    def _watch(self) -> None:
        while (left := self._left()) > 0:
            if self._ended.wait(left):
                return
        self._late = True
        self._call.cancel()

    def _left(self) -> float:
        deadline = self._deadline
        return self._timeout if deadline is None else deadline - monotonic()


def with_cure(details: str) -> str:
    """Add what to do about a server that cannot be reached."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return f"{details}; give the certificate of the authority that signed the server's (--tls-ca FILE)"
    if "failed to connect" in details or "errors resolving" in details:
        return lacking(f"{details}; start one (policybridge serve --grpc ADDRESS), or mend the address")
    return details


def error_of(failure: grpc.RpcError, target: str) -> PolicyBridgeError:
    """Convert the failure of a call to ``target`` to an error of ours."""
    status, details = failure.code().value[0], failure.details() or _NO_REASON
    # The client did not cancel: the server stopped while it received the call.
    if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        kind = RefusedError if was_refused(failure) else UnavailableError
        return kind(f"the server at {target}: {with_cure(details)}")
    return error_from_status(status, f"the server at {target}: {details}" if details.startswith(_OWN) else details)
