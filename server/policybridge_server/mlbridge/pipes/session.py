"""One compile on a pair of FIFOs: its session, its answers, and its replies without advice."""

import logging
from collections.abc import Callable

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_serdes import Layout, Outcome, PolicyReference, SessionOptions, Signature, Values
from policybridge_server.engine.session import Session
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.mlbridge.pipes.expected import ExpectedAdvice, ReplyWriter, reply_writer
from policybridge_server.mlbridge.pipes.fifos import Fifos
from policybridge_server.mlbridge.pipes.formats import load_format
from policybridge_server.mlbridge.pipes.frames import FrameReader
from policybridge_server.mlbridge.pipes.observations import ObservationReader
from policybridge_server.transports.channel import Channel
from policybridge_server.transports.contract import Host
from policybridge_server.transports.conversation import ChannelConversation

_LOG = logging.getLogger(__name__)


class PipeSession(ChannelConversation[bytes | PolicyBridgeError]):
    """Waits for a compiler on ``fifos`` and serves it.

    The first failure ends the session, as everywhere, but the compiler cannot read an error. From then
    on every observation is answered with the fallback. Without a fallback, the reply makes the
    compiler end at once, because without a reply it would wait, and after an end of file spin, for ever.

    Args:
        fifos: made for this session, which closes them.
        config: its ``[[pipe]]``.
        host: opens the session.
        started: called once, before the first bytes of a compiler are read.
        closed: called once, when the FIFOs are closed.

    Attributes:
        fallbacks: number of observations that were answered with the fallback.

    """

    def __init__(
        self,
        fifos: Fifos,
        config: PipeConfig,
        host: Host,
        started: Callable[["PipeSession"], None],
        closed: Callable[["PipeSession"], None],
    ) -> None:
        super().__init__(host, host.doors.peers.of(f"pipe {fifos.base}"), f"pipe {fifos.base}: a session")
        self._base = fifos.base
        self._fifos = fifos
        self._config = config
        self._format = load_format(config.format)
        self._expected = ExpectedAdvice(config, self._format)
        self._on_start = started
        self._on_close = closed
        self._frames = FrameReader(host.config.max_observation_bytes)
        self._started = False
        self._refused = False
        self._first: bytes | None = None
        self._latest: bytes | None = None
        self._observations: ObservationReader | None = None
        self._write: ReplyWriter | None = None
        self._failure: PolicyBridgeError | None = None
        self.fallbacks = 0
        self._channel = Channel(fifos.incoming, fifos.outgoing, fifos.close, host.loop, self)

    def _feed(self, data: bytes) -> None:
        self._start()
        self._receive(self._frames.feed(data))

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._on_start(self)

    def _hung_up(self) -> None:
        if not self._started and self._wait_again():
            return
        if self._frames.begun:
            _LOG.warning("pipe %s: the compiler ended within a message", self._base)
        self.close()

    def _wait_again(self) -> bool:
        """Wait for the next compiler, after one that sent nothing; return whether that is possible."""
        self._host.loop.unwatch(self._fifos.incoming)
        try:
            self._fifos.reopen()
        except OSError as error:
            _LOG.warning("pipe %s: cannot wait for the next compile: %s", self._base, error)
            self._start()
            return False
        self._host.loop.watch(self._fifos.incoming, self)
        return True

    def _take(self, message: bytes | PolicyBridgeError) -> None:
        self._unanswered = True
        self._latest = message if isinstance(message, bytes) else None
        if self._failure is not None:
            self._refuse()
        elif isinstance(message, PolicyBridgeError):
            self.fail(message)
        elif self._session is None or self._observations is None:
            self._first = message
            labels = {"pipe": self._base, **self._config.labels}
            options = SessionOptions(options=self._config.options, labels=labels)
            self._open(PolicyReference.parse(self._config.policy), options)
        else:
            self._ask(self._session, self._observations.row(self._format.read(message)))

    def _opened(self, session: Session) -> None:
        if self._failure is not None or self._first is None:
            session.close()
            return
        model = session.loaded.signature
        rename = session.loaded.stored.config.rename
        takes = () if model.features is None else model.features.specs
        declared = {rename.get(spec.name, spec.name): spec for spec in takes}
        self._observations = ObservationReader(
            self._config.feature_types, declared, lambda features: self._bind(session, features)
        )
        self._waiting.appendleft(self._first)

    def _bind(self, session: Session, features: Layout) -> None:
        # Not when the session opens: the first message selects the spec that its compiler reads.
        read = self._expected.spec(features.by_name)
        given = session.loaded.signature.advice or read
        self._write = reply_writer(read, given, self._format)
        session.bind(Signature(features, given))

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Send the advice, and take the next message if it has arrived."""
        if self._failure is None:
            super().answer(advice, log_probability)

    def _reply(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        if self._write is not None:
            self._channel.send(self._write(advice))

    def _answered(self) -> None:
        # The next message is taken when the reply is sent: a compiler that does not read makes no more replies.
        if not self._channel.unsent:
            super()._answered()

    def _sent(self) -> None:
        self._answered()

    def fail(self, error: PolicyBridgeError) -> None:
        """End the session; from here on the compiler gets the fallback, or is made to end."""
        if self._failure is not None:
            return
        self._failure = error
        self._host.loop.counters.told("pipe", error.status)
        what = "the fallback answers the rest of it" if self._expected.has_fallback else "its compiler is made to end"
        _LOG.warning(
            "pipe %s: a compile has no more advice, %s: %s", self._base, what, error, extra={"session": self._id}
        )
        if self._session is not None:
            self._session.close()
        if self._asked:
            self._refuse()
            self._advance()

    @property
    def _asked(self) -> bool:
        """Whether the compiler waits for a reply that has not been written."""
        return self._unanswered and not self._channel.unsent

    @property
    def _id(self) -> str:
        return "" if self._session is None else self._session.view.id

    def _refuse(self) -> None:
        fallback = self._expected.fallback(self._latest)
        if fallback is None:
            # `_unanswered` stays true: nothing that this compiler still sends is answered.
            self._refused = True
            self._waiting.clear()
            self._channel.send(self._format.refusal)
            self._pause(True)
            return
        self.fallbacks += 1
        self._channel.send(fallback)
        self._unanswered = bool(self._channel.unsent)

    def _pause(self, paused: bool) -> None:
        super()._pause(paused or self._refused)

    def finish(self) -> None:
        """Close the session because the server shuts down; a compiler that waits for advice gets its fallback first."""
        if self._asked:
            self.fail(UnavailableError("the server shut down before the compile ended"))
        self.close()

    def close(self) -> None:
        """End the session and close the FIFOs; a second call does nothing."""
        if not self._channel.is_open:
            return
        self._channel.close()
        self._end()
        if self._session is not None:
            self._report_fallbacks(self._session)
        self._on_close(self)

    def _report_fallbacks(self, session: Session) -> None:
        _LOG.info(
            "pipe %s: a session is over, %d fallbacks", self._base, self.fallbacks, extra={"session": session.view.id}
        )
        if session.recorded and self.fallbacks:
            session.report(Outcome({"fallbacks": self.fallbacks}), _log_unrecorded)


def _log_unrecorded(error: PolicyBridgeError | None) -> None:
    if error is not None:
        _LOG.warning("the ledger has no record of a pipe's fallbacks: %s", error)
