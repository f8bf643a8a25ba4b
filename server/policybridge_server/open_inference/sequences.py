"""Sequences: sessions whose client names them in each request, over any connection.

A sequence begins with sequence_start and keeps its first version. It ends with sequence_end, when the
policy fails, or after a time without requests.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from policybridge_core.errors import PolicyBridgeError, PreconditionError, TooLargeError
from policybridge_serdes import Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.engine.recorder import wait_recorded
from policybridge_server.engine.session import Session
from policybridge_server.engine.single import awaited
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.open_inference.request import InferRequest, SequenceStep

_MOST: Final = 10_000
"""Live sequences. The clients choose their number, so that it must be bounded."""

Key = tuple[str, str]
"""The policy's name and the sequence's id."""


class Sequence:
    """One live sequence; the sink of its session.

    Attributes:
        key: the names of policy and sequence.
        turn: held by the request that is being answered; the other requests wait in their order.
        seen: time of the last request, by the loop's clock.
        look: the timer of the next check for idleness.

    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.turn = asyncio.Lock()
        self.seen = asyncio.get_running_loop().time()
        self.look: asyncio.TimerHandle | None = None
        self._signature: Signature | None = None
        self._session: Session | None = None
        self._over = False
        self._settle: Callable[[Values | PolicyBridgeError], None] | None = None

    def begin(self, session: Session) -> None:
        """Give it its session.

        Raises:
            PreconditionError: it was ended while the session opened.

        """
        if self._over:
            session.close()
            raise PreconditionError(_unknown(self.key))
        self._session = session

    def session(self, version: int | None) -> Session:
        """Give its session; ``version`` is that of the request, if any.

        Raises:
            PreconditionError: it has ended, or has not begun.
            InvalidError: it is on another version.

        """
        if self._session is None:
            raise PreconditionError(_unknown(self.key))
        pinned = self._session.policy.version
        if version not in (None, pinned):
            name, sequence = self.key
            raise FieldError("model_version", f"sequence {sequence} of {name!r} is on version {pinned}, not {version}")
        self.seen = asyncio.get_running_loop().time()
        return self._session

    async def ask(self, session: Session, signature: Signature, row: Row) -> Values:
        """Give the advice for ``row``, an observation of ``signature``.

        Raises:
            PolicyFailedError: there is no advice.

        """
        if self._signature != signature:
            session.bind(signature)
            self._signature = signature

        def begin(settle: Callable[[Values | PolicyBridgeError], None]) -> None:
            self._settle = settle
            session.submit(row)

        return await awaited(begin)

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Take the advice that the request waits for."""
        self._came(advice)

    def fail(self, error: PolicyBridgeError) -> None:
        """Take the error instead of the advice."""
        self._came(error)

    def _came(self, result: Values | PolicyBridgeError) -> None:
        if self._settle is not None:
            self._settle(result)

    def close(self) -> None:
        """End its session; a second call does nothing."""
        session, self._session, self._over = self._session, None, True
        if session is not None:
            session.close()


class Sequences:
    """All live sequences.

    Args:
        idle: seconds without a request after which one ends by itself.

    """

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self._live: dict[Key, Sequence] = {}

    def find(self, request: InferRequest, step: SequenceStep) -> Sequence:
        """Give the sequence that a request belongs to, a new one if it starts one.

        Raises:
            PreconditionError: there is no such sequence.
            TooLargeError: there are too many.

        """
        key = (request.reference.name, step.id)
        sequence = self._live.get(key)
        if not step.start:
            if sequence is None:
                raise PreconditionError(_unknown(key))
            return sequence
        if sequence is not None:
            # The client starts again: this ends its former sequence of this id.
            self.end(sequence)
        if len(self._live) >= _MOST:
            raise TooLargeError(f"{_MOST} sequences are live; end some, or wait for some to end")
        sequence = self._live[key] = Sequence(key)
        self._look_later(sequence, self.idle)
        return sequence

    def _look_later(self, sequence: Sequence, seconds: float) -> None:
        sequence.look = asyncio.get_running_loop().call_later(seconds, self._look, sequence)

    def _look(self, sequence: Sequence) -> None:
        left = sequence.seen + self.idle - asyncio.get_running_loop().time()
        if sequence.turn.locked():
            self._look_later(sequence, self.idle)
        elif left > 0:
            self._look_later(sequence, left)
        else:
            self.end(sequence)

    def end(self, sequence: Sequence) -> None:
        """End a sequence; a second call does nothing."""
        if self._live.get(sequence.key) is sequence:
            del self._live[sequence.key]
        if sequence.look is not None:
            sequence.look.cancel()
        sequence.close()


def _unknown(key: Key) -> str:
    name, sequence = key
    return (
        f"no sequence {sequence} of {name!r} is live: the first request of one has sequence_start, and it ends with "
        "sequence_end, when the policy fails, or when nothing comes for a while"
    )


async def finish(session: Session) -> None:
    """End ``session``, and wait until the ledger, if any, has all of it."""
    await wait_recorded(session.finish)
