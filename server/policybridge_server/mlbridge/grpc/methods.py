"""One method of a user's service: its plan, made when the server starts, and the way of one request."""

import asyncio
import logging
from collections.abc import Hashable
from typing import Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from policybridge_core.errors import (
    InvalidError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
)
from policybridge_serdes import PolicyReference, SessionOptions, Signature
from policybridge_serdes.values import Row
from policybridge_server.engine.binding import bind
from policybridge_server.grpc.calls import Calls, Context
from policybridge_server.mlbridge.grpc.conditions import condition, scalar
from policybridge_server.mlbridge.grpc.config import MethodConfig
from policybridge_server.mlbridge.grpc.conversations import Asked, Conversation, Conversations
from policybridge_server.mlbridge.grpc.descriptors import ForeignMethod
from policybridge_server.mlbridge.grpc.replies import Replies
from policybridge_server.mlbridge.grpc.requests import LARGE, Requests
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)

FALLBACK: Final = "policybridge-fallback-bin"
"""Trailing metadata of a reply that holds the fallback: why, in UTF-8. ML-Compiler-Bridge does not read it."""

_REASON: Final = 500
"""Characters of it: clients take 8 KiB of metadata, and would fail on more."""

IDLE_TIMEOUT: Final = 600.0

_ANYBODY: Final = "unix:"
"""What gRPC's own library calls every client of a Unix socket; our transport numbers them."""


class Method:
    """Answers the requests of one method.

    Args:
        method: whose it is.
        config: how it is answered.
        host: who answers.
        calls: those that run.
        most: sessions at a time.

    Raises:
        InvalidError: the configuration does not fit the messages, or the client could not read the reply.

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
        self._conversations = Conversations(config.idle_timeout or IDLE_TIMEOUT, most)
        self._opening = asyncio.Lock()
        self._fallbacks = 0

    async def call(self, data: bytes, context: Context) -> bytes:
        """Answer one request: with advice, or with the fallback where there is one."""
        async with self._calls.mapped(context):
            try:
                return await self._advise(data, context)
            except UnavailableError:
                # The client tries again until a server is back.
                raise
            except Exception as error:
                if self._key is None:
                    # As everywhere, a failure ends the session: what the client asks next is another episode.
                    self._conversations.drop(context.peer())
                if self._fallback is None:
                    raise
                self._count_fallback(error)
                context.set_trailing_metadata(((FALLBACK, str(error)[:_REASON].encode()),))
                return self._fallback
        raise AssertionError("abort always raises")

    async def _advise(self, data: bytes, context: Context) -> bytes:
        decode = self._requests.decode
        message, row = decode(data) if len(data) < LARGE else await asyncio.to_thread(decode, data)
        key = context.peer() if self._key is None else self._key(message)
        if self._key is None and key == _ANYBODY:
            return await self._advise_alone(data, message, row)
        conversation = self._find(key, data, message)
        if conversation is None:
            async with self._opening:
                conversation = self._find(key, data, message)
                if conversation is None:
                    conversation = await self._open(key)
                    self._conversations.put(key, conversation)
        # Nothing may be awaited in between: a conversation that was found is not over.
        return await _delivered(conversation, conversation.again(data) or self._ask(conversation, data, message, row))

    def _find(self, key: Hashable, data: bytes, message: Message) -> Conversation | None:
        """Give the conversation that goes on; ``None`` where one starts.

        Raises:
            PreconditionError: none goes on, and this request does not start one.

        """
        found = self._conversations.get(key)
        if found is not None and found.again(data):
            return found
        starts = self._starts is not None and self._starts(message)
        if found is not None and not found.over and not starts:
            return found
        if self._starts is not None and not starts:
            raise PreconditionError(f"{self._name}: no session goes on here, and this request does not start one")
        return None

    async def _open(self, key: Hashable) -> Conversation:
        conversation = Conversation(self._end_advice, self._calls.ended)
        options = SessionOptions(labels={**self._labels, "peer": str(key)})
        session = await self._opener.open(self._reference, options, conversation)
        try:
            advice = session.loaded.signature.advice or self._replies.spec
            write = self._replies.writer(advice)
            session.bind(Signature(self._requests.layout, advice))
        except PolicyBridgeError:
            session.close()
            raise
        conversation.begin(session, write)
        if self._ends or self._end_advice:
            # A server that shuts down waits for it; of others nobody knows whether they go on.
            self._calls.began(conversation)
        return conversation

    def _ask(self, conversation: Conversation, data: bytes, message: Message, row: Row) -> Asked:
        context = None if self._context is None else self._context(message)
        return conversation.ask(data, row, context, ends=self._ends is not None and self._ends(message))

    async def _advise_alone(self, data: bytes, message: Message, row: Row) -> bytes:
        """Answer in a session of its own a client that cannot be told from others, if that makes sense."""
        if self._starts or self._ends or self._end_advice:
            raise PreconditionError(
                f"{self._name}: clients of this Unix socket look alike: its sessions need a `key`, or TCP"
            )
        conversation = await self._open("unix")
        try:
            return await self._ask(conversation, data, message, row).reply()
        finally:
            conversation.end()

    def _count_fallback(self, error: Exception) -> None:
        self._fallbacks += 1
        # A policy that fails for ever must not fill the disk.
        if self._fallbacks & (self._fallbacks - 1) == 0:
            _LOG.warning("%s: the fallback was the answer, the %d. time: %s", self._name, self._fallbacks, error)

    def check(self) -> None:
        """Tell the operator if the policy, as it is now, cannot answer this method."""
        try:
            loaded = self._opener.engine.loaded(self._reference)
            if loaded is not None:
                advice = loaded.signature.advice or self._replies.spec
                self._replies.writer(advice)
                bind(Signature(self._requests.layout, advice), loaded.signature, loaded.stored)
        except PolicyBridgeError as error:
            _LOG.warning("%s cannot be answered: %s", self._name, error)


async def _delivered(conversation: Conversation, asked: Asked) -> bytes:
    # A call that is cancelled here leaves what was asked for the client's next attempt.
    try:
        reply = await asked.reply()
    except PolicyBridgeError:
        conversation.delivered(asked)
        raise
    conversation.delivered(asked)
    return reply


def _reference(config: MethodConfig) -> PolicyReference:
    if config.policy is None:
        raise InvalidError(
            "no policy answers it: name one (`policy`) for the method, for its service or for all, or leave it out "
            "(`serve = false`)"
        )
    return PolicyReference.parse(config.policy)
