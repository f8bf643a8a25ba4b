"""One method of a user's service: its binding, made at start, and the answering of requests."""

import asyncio
import logging
from collections.abc import Hashable
from functools import partial
from typing import Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_core.text import without_paths
from policybridge_serdes import PolicyReference, SessionOptions, Signature
from policybridge_serdes.values import Row
from policybridge_server.engine.binding import bind
from policybridge_server.grpc.calls import Calls, Context
from policybridge_server.grpc.session import client_of
from policybridge_server.mlbridge.grpc.conditions import condition, scalar
from policybridge_server.mlbridge.grpc.config import MethodConfig
from policybridge_server.mlbridge.grpc.decoding import LARGE, Decoding
from policybridge_server.mlbridge.grpc.descriptors import ForeignMethod
from policybridge_server.mlbridge.grpc.replies import Replies
from policybridge_server.mlbridge.grpc.requests import Requests
from policybridge_server.mlbridge.grpc.sessions import ForeignSession, ForeignSessions, PendingRequest
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)

FALLBACK: Final = "policybridge-fallback-bin"
"""Trailing metadata of a reply that holds the fallback: why, in UTF-8. ML-Compiler-Bridge does not read it."""

_REASON: Final = 500
"""Characters of the reason in that metadata: clients take 8 KiB of metadata in all, and fail on more."""

IDLE_TIMEOUT: Final = 600.0

_UNIX_PEER: Final = "unix:"
"""The name that gRPC's own library has for every client of a Unix socket; our transport numbers them."""


class _Request(NamedTuple):
    """A decoded request, without its message, which takes up to forty times its bytes.

    Attributes:
        data: its bytes.
        row: its observation.
        key: of its session.
        starts: whether it starts a session; false if nothing in a request does.
        context: the name of its module or function.
        ends: whether its session ends with it.

    """

    data: bytes
    row: Row
    key: Hashable
    starts: bool
    context: str | None
    ends: bool


class MethodHandler:
    """Answers the requests of one method.

    Args:
        method: the user's method.
        config: how it is answered.
        host: opens the sessions.
        calls: the running calls.
        most: number of sessions at a time.

    Raises:
        UnreadableReplyError: the client could not read the reply.
        InvalidError: the configuration does not fit the messages.

    """

    def __init__(self, method: ForeignMethod, config: MethodConfig, host: Host, calls: Calls, most: int) -> None:
        request = cast("Descriptor", method.request.DESCRIPTOR)
        self._name = str(method)
        self._replies = Replies(method.reply)
        self._requests = Requests(method.request, config.bind or {}, host.config.max_observation_bytes)
        self._reference = _reference(config)
        self._key = None if config.key is None else scalar(request, config.key, "key")
        self._context = None if config.context is None else scalar(request, config.context, "context", text=True)
        self._starts = condition(request, config.start, "start")
        self._ends = condition(request, config.end, "end")
        self._end_advice = None if config.end_advice is None else [config.end_advice]
        self._fallback = None if config.fallback is None else self._replies.fallback(config.fallback)
        self._labels = {"client": "ml-compiler-bridge", "method": self._name, **(config.labels or {})}
        self._opener = host.opener
        self._calls = calls
        self._sessions = ForeignSessions(config.idle_timeout or IDLE_TIMEOUT, most)
        self._opening = asyncio.Lock()
        self._decoding = host.shared(Decoding, Decoding)
        self._fallbacks = 0

    async def call(self, data: bytes, context: Context) -> bytes:
        """Answer one request: with advice, or with the fallback if there is one."""
        try:
            return await self._advise(data, context)
        except UnavailableError:
            # The client sends the request again until a server takes it.
            raise
        except Exception as error:
            if self._key is None:
                # As everywhere, a failure ends the session: the client's next request starts another.
                self._sessions.drop(context.peer())
            if self._fallback is None:
                raise
            self._count_fallback(error)
            context.set_trailing_metadata(((FALLBACK, without_paths(str(error))[:_REASON].encode()),))
            return self._fallback

    async def _advise(self, data: bytes, context: Context) -> bytes:
        read = partial(self._read, context.peer())
        aside = partial(self._decoding.decode, peer=client_of(context.peer()))
        request = read(data) if len(data) < LARGE else await aside(read, data)
        if self._key is None and request.key == _UNIX_PEER:
            return await self._advise_alone(request)
        session = self._find(request)
        if session is None:
            async with self._opening:
                session = self._find(request)
                if session is None:
                    session = await self._open(request.key)
                    self._sessions.put(request.key, session)
        # Await nothing between finding the session and asking it: it could end in between.
        pending = session.find(data) or _ask(session, request)
        # The ledger and the model have the observation; this call needs it no longer.
        del request
        return await _delivered(session, pending)

    def _read(self, peer: str, data: bytes) -> _Request:
        message, row = self._requests.decode(data)
        return _Request(
            data,
            row,
            peer if self._key is None else self._key(message),
            self._starts is not None and self._starts(message),
            None if self._context is None else self._context(message),
            self._ends is not None and self._ends(message),
        )

    def _find(self, request: _Request) -> ForeignSession | None:
        """Give the running session of a request; ``None`` if this request starts one.

        Raises:
            PreconditionError: no session runs, and this request does not start one.

        """
        session = self._sessions.get(request.key)
        if session is not None and session.find(request.data):
            return session
        if session is not None and not session.over and not request.starts:
            return session
        if self._starts is not None and not request.starts:
            raise PreconditionError(
                f"{self._name}: no session is running for this client, and this request does not start one"
            )
        return None

    async def _open(self, key: Hashable) -> ForeignSession:
        foreign = ForeignSession(self._end_advice, self._calls.discard)
        options = SessionOptions(labels={**self._labels, "peer": str(key)})
        session = await self._opener.open(self._reference, options, foreign)
        try:
            advice = session.loaded.signature.advice or self._replies.spec
            write = self._replies.writer(advice)
            session.bind(Signature(self._requests.layout, advice))
        except PolicyBridgeError:
            session.close()
            raise
        foreign.begin(session, write)
        if self._ends or self._end_advice:
            # A server that shuts down waits for sessions that have an end. Others may never send another request.
            self._calls.add(foreign)
        return foreign

    async def _advise_alone(self, request: _Request) -> bytes:
        """Answer in a session of its own, because gRPC gives the same name to every client of a Unix socket."""
        if self._starts or self._ends or self._end_advice:
            raise PreconditionError(
                f"{self._name}: clients of this Unix socket cannot be told apart: its sessions need a `key`, or TCP"
            )
        session = await self._open("unix")
        try:
            return await _ask(session, request).reply()
        finally:
            session.end()

    def _count_fallback(self, error: Exception) -> None:
        self._fallbacks += 1
        # Log the 1st, 2nd, 4th, 8th … time: a policy that always fails must not fill the disk.
        if self._fallbacks & (self._fallbacks - 1) == 0:
            _LOG.warning("%s: the fallback was the answer %d times so far: %s", self._name, self._fallbacks, error)

    def check(self) -> None:
        """Warn in the log if the present policy cannot answer this method."""
        try:
            loaded = self._opener.engine.loaded(self._reference)
            if loaded is not None:
                advice = loaded.signature.advice or self._replies.spec
                self._replies.writer(advice)
                bind(Signature(self._requests.layout, advice), loaded.signature, loaded.stored)
        except PolicyBridgeError as error:
            _LOG.warning("%s cannot be answered: %s", self._name, error)


def _ask(session: ForeignSession, request: _Request) -> PendingRequest:
    return session.ask(request.data, request.row, request.context, ends=request.ends)


async def _delivered(session: ForeignSession, request: PendingRequest) -> bytes:
    # A call that is cancelled here leaves the request pending, for the client's next attempt.
    try:
        reply = await request.reply()
    except PolicyBridgeError:
        session.delivered(request)
        raise
    session.delivered(request)
    return reply


def _reference(config: MethodConfig) -> PolicyReference:
    if config.policy is None:
        raise InvalidError(
            "no policy answers it: name one (`policy`) for the method, for its service or for all, or leave it out "
            "(`serve = false`)"
        )
    return PolicyReference.parse(config.policy)
