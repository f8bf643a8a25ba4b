"""One Session RPC, driven from the thread that asks."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, cast

import grpc

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_core.errors import (
    DeadlineError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    error_from_status,
)

_CLOSING: Final = 1.0
"""Seconds that a server has to agree to the end of a session."""


class Stream:
    """The Session RPC, one question and one answer at a time.

    gRPC's own deadline is for the whole call, so each wait has its own: a thread that sleeps until the deadline of
    the wait under way, and costs a decision nothing.
    """

    def __init__(self, stub: PolicyServiceStub, target: str, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        # A queue's iterator was as fast as grpc.aio on a loop of its own with a deadline per wait (p50 207–256 against
        # 260–290 µs, an echo over a Unix socket), and works where the caller has a running loop himself.
        self._requests: SimpleQueue[pb.SessionRequest | None] = SimpleQueue()
        self._call: Any = stub.Session(iter(self._requests.get, None))
        self._responses = cast("Iterator[pb.SessionResponse]", self._call)
        self._over: str | None = None
        self._deadline: float | None = None
        self._late = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="policybridge-deadline", daemon=True).start()

    def send(self, request: pb.SessionRequest) -> None:
        """Send what is not answered."""
        self._requests.put(request)

    def ask(self, request: pb.SessionRequest) -> pb.SessionResponse:
        """Send what is answered, and wait for the answer."""
        if self._over is not None:
            raise PreconditionError(f"the session is over: {self._over}")
        self._deadline = monotonic() + self._timeout
        self._requests.put(request)
        try:
            return next(self._responses)
        except grpc.RpcError as failure:
            raise self._end(self._error(failure)) from failure
        except StopIteration:
            raise self._end(UnavailableError(f"the server at {self._target} ended the session")) from None
        except BaseException as error:
            # A signal ended the wait: the answer to come would be taken for the next one's.
            self._call.cancel()
            self._end(UnavailableError(repr(error)))
            raise
        finally:
            self._deadline = None

    def close(self) -> None:
        """Half-close, which ends the session; twice is once."""
        if self._over is not None:
            return
        self._requests.put(None)
        with suppress(grpc.FutureTimeoutError, grpc.FutureCancelledError):
            # The server's own end: without it a channel that is closed next would cut the call off.
            self._call.exception(min(self._timeout, _CLOSING))
        self._end(UnavailableError("it was closed"))

    def _end(self, error: PolicyBridgeError) -> PolicyBridgeError:
        self._over = str(error)
        self._ended.set()
        self._requests.put(None)
        return error

    def _error(self, failure: grpc.RpcError) -> PolicyBridgeError:
        if self._late:
            return DeadlineError(f"no answer from the server at {self._target} within {self._timeout:g} s")
        return error_of(failure, self._target)

    def _watch(self) -> None:
        left = self._timeout
        while not self._ended.wait(left):
            deadline = self._deadline
            left = self._timeout if deadline is None else deadline - monotonic()
            if left <= 0:
                self._late = True
                self._call.cancel()
                return


def error_of(failure: grpc.RpcError, target: str) -> PolicyBridgeError:
    """Give the error that a failed call to ``target`` stands for."""
    status, details = failure.code().value[0], failure.details() or "no reason given"
    # Nobody here cancels without knowing: the server stopped while the call came in.
    if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return UnavailableError(f"the server at {target}: {details}")
    return error_from_status(status, details)
