"""One compile on a pair of FIFOs: its session, its answers, and what it is told when there is no advice."""

import asyncio
import logging
import select
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from policybridge_core.errors import PolicyBridgeError, UnavailableError, UnknownError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature, Values
from policybridge_server.engine.engine import Session
from policybridge_server.mlbridge.pipes.answers import Answer, encode, make_answer
from policybridge_server.mlbridge.pipes.channel import PipeChannel
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.mlbridge.pipes.fifos import Fifos
from policybridge_server.mlbridge.pipes.formats import Format, load_format
from policybridge_server.mlbridge.pipes.frames import FrameReader
from policybridge_server.mlbridge.pipes.observations import Observations
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)


class Owner(Protocol):
    """Who made a session, and makes the next one."""

    def begun(self, session: "PipeSession") -> None:
        """Take the news that a compiler asked for the first time."""
        ...

    def gone(self, session: "PipeSession") -> None:
        """Take the news that the session is closed."""
        ...


@dataclass(frozen=True)
class Pool:
    """What all sessions of one ``[[pipe]]`` share.

    Attributes:
        config: what the operator asked for.
        fallback: the framed reply where there is no advice; ``None`` where the compiler is made to end.

    """

    config: PipeConfig
    fallback: bytes | None

    @classmethod
    def of(cls, config: PipeConfig) -> "Pool":
        """Prepare the pool.

        Raises:
            InvalidError: the fallback is not what the compiler reads.
            NotFoundError: there is no such format.

        """
        form = load_format(config.format)
        return cls(config, None if config.fallback is None else encode(config.advice_spec, config.fallback, form))


class PipeSession:
    """Waits for a compiler on ``fifos`` and serves it inside the loop's turns; also the sink of its session's answers.

    The first failure ends the session, as everywhere; the compiler is told nothing of it. From then on it gets the
    fallback, or where there is none what ends it at once: it would take silence for a long thought, and the end of file
    for an answer that is still to come, which it awaits with all of a processor.

    Args:
        fifos: made for this session.
        pool: that it belongs to.
        form: how this base's messages are written.
        host: who answers.
        owner: told what becomes of it.

    """

    def __init__(self, fifos: Fifos, pool: Pool, form: Format, host: Host, owner: Owner) -> None:
        self.base = fifos.base
        self._config = pool.config
        self._fallback = pool.fallback
        self._format = form
        self._host = host
        self._owner = owner
        self._frames = FrameReader(host.config.max_observation_bytes)
        self._messages: deque[bytes | PolicyBridgeError] = deque()
        self._asked = False
        self._begun = False
        self._ended = False
        self._session: Session | None = None
        self._observations: Observations | None = None
        self._answer: Answer | None = None
        self._failure: PolicyBridgeError | None = None
        self._opening: asyncio.Task[None] | None = None
        self.fallbacks = 0
        self._channel = PipeChannel(fifos, host.loop, self, self._advance)

    def ready(self, events: int) -> None:
        """Take what has arrived; whatever goes wrong costs this compile its advice, and no other anything."""
        try:
            if events & select.EPOLLIN:
                self._receive()
            else:
                self._hung_up()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not isinstance(error, PolicyBridgeError):
            _LOG.error("pipe %s: a session failed", self.base, exc_info=error)
            error = UnknownError(f"the server failed: {error!r}")
        self.fail(error)

    def _receive(self) -> None:
        data = self._channel.receive()
        if data:
            if not self._begun:
                self._begun = True
                self._owner.begun(self)
            self._messages.extend(self._frames.feed(data))
            self._advance()
        elif data is not None:
            self._hung_up()

    def _hung_up(self) -> None:
        if not self._begun and self._wait_again():
            return
        if self._frames.begun:
            _LOG.warning("pipe %s: the compiler ended within a message", self.base)
        self.close()

    def _wait_again(self) -> bool:
        """Wait for the next compiler, after one that asked nothing or somebody who only looked; say whether it can."""
        try:
            self._channel.reopen()
        except OSError as error:
            _LOG.warning("pipe %s: cannot wait for the next compile: %s", self.base, error)
            self._owner.begun(self)
            return False
        return True

    def _advance(self) -> None:
        while self._messages and not (self._asked or self._channel.full):
            self._asked = True
            self._take(self._messages.popleft())
        self._channel.read(not (self._messages or self._ended))

    def _take(self, message: bytes | PolicyBridgeError) -> None:
        if self._failure is not None:
            self._refuse()
        elif isinstance(message, PolicyBridgeError):
            self.fail(message)
        elif self._session is None:
            self._opening = self._host.loop.spawn(self._open(message))
        else:
            self._ask(message)

    async def _open(self, message: bytes) -> None:
        labels = {"pipe": self.base, **self._config.labels}
        options = SessionOptions(options=self._config.options, labels=labels)
        try:
            session = await self._host.opener.open(PolicyReference.parse(self._config.policy), options, self)
            if not self._channel.is_open or self._failure is not None:
                session.close()
                return
            self._session = session
            self._prepare(session)
            self._ask(message)
        except Exception as error:
            self._break(error)

    def _prepare(self, session: Session) -> None:
        model, read = session.loaded.signature, self._config.advice_spec
        given = model.advice or read
        rename = session.loaded.stored.config.rename
        takes = () if model.features is None else model.features.specs
        declared = {rename.get(spec.name, spec.name): spec for spec in takes}
        self._answer = make_answer(read, given, self._format)
        self._observations = Observations(
            self._config.feature_types, declared, lambda features: session.bind(Signature(features, given))
        )

    def _ask(self, message: bytes) -> None:
        if self._session is not None and self._observations is not None:
            self._session.submit(self._observations.row(self._format.read(message)))

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Send the advice, and hand over the next observation if it is there already."""
        if self._failure is not None or self._answer is None:
            return
        try:
            self._channel.send(self._answer(advice))
            self._asked = False
            if self._messages:
                self._advance()
        except Exception as error:
            self._break(error)

    def fail(self, error: PolicyBridgeError) -> None:
        """End the session; from here on the compiler gets what stands in for advice."""
        if self._failure is not None:
            return
        self._failure = error
        what = "its compiler is made to end" if self._fallback is None else "the fallback answers the rest of it"
        _LOG.warning("pipe %s: a compile has no more advice, %s: %s", self.base, what, error)
        if self._session is not None:
            self._session.close()
        if self._asked:
            self._refuse()
            self._advance()

    def _refuse(self) -> None:
        if self._fallback is None:
            # It stays asked: nothing that still comes from this compiler is answered.
            self._ended = True
            self._messages.clear()
            self._channel.send(self._format.refusal)
            return
        self.fallbacks += 1
        self._channel.send(self._fallback)
        self._asked = False

    def finish(self) -> None:
        """Close it because the server shuts down; whoever waits is told so first."""
        if self._asked:
            self.fail(UnavailableError("the server shut down before the compile ended"))
        self.close()

    def close(self) -> None:
        """End the session and close the FIFOs; twice is once."""
        if not self._channel.is_open:
            return
        self._channel.close()
        self._messages.clear()
        if self._session is not None:
            self._session.close()
            self._tell(self._session)
        self._owner.gone(self)

    def _tell(self, session: Session) -> None:
        _LOG.info("pipe %s: session %s is over, %d fallbacks", self.base, session.view.id, self.fallbacks)
        if session.recorded and self.fallbacks:
            session.report(Outcome({"fallbacks": self.fallbacks}), _kept)


def _kept(error: PolicyBridgeError | None) -> None:
    if error is not None:
        _LOG.warning("the ledger keeps no outcome of a pipe: %s", error)
