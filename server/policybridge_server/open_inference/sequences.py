"""Sequences: sessions whose client names them in each request, over whatever connection.

A sequence begins with sequence_start and stays on the version that it began on. It ends with sequence_end, when the
policy fails, or when nothing came for a while.
"""

import asyncio
from typing import Final

from policybridge_core.errors import PreconditionError, TooLargeError
from policybridge_serdes import Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.engine.engine import Session
from policybridge_server.engine.recorder import wait_recorded
from policybridge_server.grpc.field_error import FieldError
from policybridge_server.open_inference.asked import Asked, Step
from policybridge_server.open_inference.evaluation import Answers

_MOST: Final = 10_000
"""Live sequences: their number is in strangers' hands."""

Key = tuple[str, str]
"""The policy's name and the sequence's id."""


class Sequence:
    """One live sequence.

    Attributes:
        key: its names.
        turn: held by the request that is being answered; the others wait in their order.
        answers: the sink of its session.
        seen: when a request came last, by the loop's clock.
        look: the next look at whether it is idle.

    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.turn = asyncio.Lock()
        self.answers = Answers()
        self.seen = asyncio.get_running_loop().time()
        self.look: asyncio.TimerHandle | None = None
        self._signature: Signature | None = None
        self._session: Session | None = None
        self._over = False

    def begin(self, session: Session) -> None:
        """Let it be this session.

        Raises:
            PreconditionError: it was ended while the session opened.

        """
        if self._over:
            session.close()
            raise PreconditionError(_unknown(self.key))
        self._session = session

    def session(self, version: int | None) -> Session:
        """Give its session; ``version`` is the one that a request names, if it does.

        Raises:
            PreconditionError: it is over, or has not begun.
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
            PolicyFailedError: there is none.

        """
        if self._signature != signature:
            session.bind(signature)
            self._signature = signature
        future = self.answers.expect(1)
        session.submit(row)
        (advice,) = await future
        return advice

    def close(self) -> None:
        """End its session; twice is once."""
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

    def find(self, asked: Asked, step: Step) -> Sequence:
        """Give the sequence that a request belongs to, a new one where it starts one.

        Raises:
            PreconditionError: there is none.
            TooLargeError: there are too many.

        """
        key = (asked.reference.name, step.id)
        sequence = self._live.get(key)
        if not step.start:
            if sequence is None:
                raise PreconditionError(_unknown(key))
            return sequence
        if sequence is not None:
            # A client that lost count starts again, and what it had is over.
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
        """Let a sequence be over; twice is once."""
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


async def acknowledge(session: Session) -> None:
    """Wait until the ledger, where there is one, holds all of ``session``."""
    if session.recorded:
        await wait_recorded(lambda reported: session.report(None, reported))
