"""Decisions that a client made by the policy's form: their record, and the check of a sample of them."""

import logging
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import Signature, Values
from policybridge_serdes.interactive import CHANCE_BYTES, Decided
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.recorder import Recording
from policybridge_server.engine.resuming import HeldDecisions

_LOG = logging.getLogger(__name__)

_ONE_OF: Final = 64
"""The server makes one of this many decisions again, and one of each larger message."""

_EIGHT: Final = struct.Struct("8Q")
"""Random numbers that are read together from the system's source."""

_MOST_DRAWN: Final = 8
"""Drawn decisions of a session that wait to be made again together: one run of the model takes less than eight."""

_SMALL: Final = 4096
"""Bytes of an observation that may wait for those of other sessions."""

_NEAR: Final = 1 / 64
"""Difference of two log-probabilities that may come of the last bits of the scores: twice a step of two scores."""


class ClientDecisions:
    """Takes the decisions that the client of one session made for one signature. For the loop thread.

    The server asks the model again for a sample, taken at random, and counts those that differ: one of 64 decisions, or
    one of a message that has more. In a session that explores it repeats the draw, too. So a client whose evaluation is
    wrong is found; a client that reports decisions which it did not follow is not. Eight of a sample are made together.
    Those that are left at the session's outcome and end are made a little later, with those of other sessions.

    Args:
        session: of the client.
        signature: of the decisions.
        model: decides for clients of this signature.
        batcher: of the same.
        recording: the session's record; ``None``: it is not recorded.

    Attributes:
        held: leaves out those that the ledger holds; ``None``: the session is new.

    Raises:
        InvalidError: the signature is of varying size, or has bools or strings.

    """

    def __init__(
        self,
        session: SessionView,
        signature: Signature,
        model: LoadedModel,
        batcher: Batcher,
        recording: Recording | None,
    ) -> None:
        if not (signature.features.plain and signature.advice_layout.plain):
            raise InvalidError("features and an advice by which a client decides have fixed sizes and no bools")
        self._session = session
        self._features = signature.features.size
        self._advice = signature.advice_layout
        self._choices = None if model.head is None else model.head.count
        self._choice = np.dtype(f"<u{self._advice.size}" if model.head else np.void)
        self._entropy: list[int] = []
        self._batcher = batcher
        self._recording = recording
        self.held: HeldDecisions | None = None
        self._counters = model.counters
        self._drawn: list[_Drawn] = []
        self._told = False

    def take(self, decided: Decided, taken: Callable[[], None]) -> None:
        """Record decisions, and call ``taken`` when the next may come: the sample is made again, the ledger keeps up.

        Raises:
            InvalidError: the bytes are of another number of decisions, an advice is none of the policy's choices, or a
                chance is no logarithm of a probability, or lacks though the session explores.

        """
        size, advice = self._features, self._advice.size
        sizes = size, advice, CHANCE_BYTES if decided.chances else 0
        if len(decided.payload) != decided.count * sum(sizes):
            raise InvalidError(
                f"{len(decided.payload)} bytes are not {decided.count} decisions of {size} and {advice} bytes"
                + (f", and of {CHANCE_BYTES} for each chance" if decided.chances else "")
            )
        if self.held is not None:
            rest = self.held.rest(decided, sizes)
            self._count_draws(decided.count - rest.count)
            decided = rest
        count, payload = decided.count, decided.payload
        if not count:
            taken()
            return
        middle, end = count * size, count * (size + advice)
        view = memoryview(payload)
        if self._choices is not None:
            _check_choices(np.frombuffer(payload, self._choice, count, middle), self._choices)
        chances: npt.NDArray[np.float32] | None = None
        first = 0
        if decided.chances or self._session.drawing is not None:
            chances, first = self._chances(decided, end), self._count_draws(count)
        self._counters.made_by_clients += count
        if self._recording is not None:
            self._recording.reported(count, view[:middle], view[middle:end], decided.nanoseconds // count, view[end:])
            # Reports come faster than a disk takes them. Else they would fill the room of all sessions.
            taken = partial(self._recording.keep_pace, taken)
        drawn = self._random() % max(count, _ONE_OF)
        # A record does not say which draws the server made in between, so that the numbers of its own are not known.
        if drawn < count and (self.held is None or self._session.drawing is None):
            row, begin = payload[drawn * size : (drawn + 1) * size], middle + drawn * advice
            chance = None if chances is None else float(chances[drawn])
            self._drawn.append(_Drawn(first + drawn, row, payload[begin : begin + advice], chance))
        if len(self._drawn) >= _MOST_DRAWN:
            self.check(taken)
        else:
            taken()

    def check(self, checked: Callable[[], None] | None = None) -> None:
        """Make the drawn decisions, if there are some, again as one batch, and call ``checked`` when they are made."""
        if not self._drawn:
            return
        drawn, self._drawn = self._drawn, []
        left = len(drawn)

        def ended(difference: str) -> None:
            nonlocal left
            left -= 1
            self._checked(difference)
            if not left and checked is not None:
                checked()

        decisions = [Decision(self._view(each.number), each.row, _Check(each, ended)) for each in drawn]
        if checked is None and self._features <= _SMALL:
            self._batcher.repeat_later(decisions)
        else:
            self._batcher.repeat(decisions)

    def _chances(self, decided: Decided, begin: int) -> npt.NDArray[np.float32] | None:
        explores = self._session.drawing is not None
        if decided.chances is not explores:
            told = "explores: its decisions come with" if explores else "does not explore: its decisions come without"
            raise InvalidError(f"the session {told} the logarithms of their probabilities (chances)")
        if not explores:
            return None
        chances = np.frombuffer(decided.payload, "<f4", decided.count, begin)
        # NaN is not finite.
        if not (np.isfinite(chances) & (chances <= 0)).all():
            raise InvalidError("the logarithm of a probability is finite and 0 at most, and a reported one is not")
        return chances

    def _count_draws(self, count: int) -> int:
        """Count decisions among the draws of the session; give the number of the first one."""
        drawing = self._session.drawing
        if drawing is None:
            return 0
        first, drawing.number = drawing.number, drawing.number + count
        return first

    def _view(self, number: int) -> SessionView:
        """Give the session as it was when this decision was drawn."""
        drawing = self._session.drawing
        return self._session if drawing is None else replace(self._session, drawing=drawing.at(number))

    def _checked(self, difference: str) -> None:
        """Count a decision that was made again; empty: the report has the same advice."""
        self._counters.checked += 1
        if not difference:
            return
        self._counters.differing += 1
        if not self._told:
            self._told = True
            version = self._session.policy
            said = f"a client of {version.name}@{version.version} decides by itself: {difference}"
            _LOG.warning("%s", said, extra={"session": self._session.id})

    def _random(self) -> int:
        """Give 64 bits of the system's source, which clients cannot foretell; a remainder of them is even enough."""
        if not self._entropy:
            self._entropy = list(_EIGHT.unpack(os.urandom(_EIGHT.size)))
        return self._entropy.pop()


def _check_choices(advices: npt.NDArray[np.unsignedinteger[Any]], choices: int) -> None:
    """Check advices, read as integers without a sign: a negative one is larger than each choice."""
    if advices.max() >= choices:
        raise InvalidError(f"the policy's advice is one of 0 to {choices - 1}, and a reported one is not")


class _Drawn(NamedTuple):
    """A decision that is to be made again.

    Attributes:
        number: of its draw; 0 if the session does not explore.
        row: its observation.
        advice: that the client reported.
        chance: likewise; ``None``: the session does not explore.

    """

    number: int
    row: bytes
    advice: bytes
    chance: float | None


class _Check:
    """The sink of a decision that is made again."""

    def __init__(self, drawn: _Drawn, ended: Callable[[str], None]) -> None:
        self._drawn = drawn
        self._ended = ended

    def answer(self, advice: Values, log_probability: float | None) -> None:
        difference, told = "", self._drawn.chance
        if advice.tobytes() != self._drawn.advice:
            difference = "it reported another advice than the policy gives"
        elif not _is_near(log_probability, told):
            difference = f"it reported the log-probability {told} of an advice that has {log_probability}"
        self._ended(difference)

    def fail(self, error: PolicyBridgeError) -> None:
        self._ended(f"the policy fails where it reported an advice: {error}")


def _is_near(made: float | None, told: float | None) -> bool:
    # The model's scores may differ from the form's in their last bits, and so fall on the next step of the draw.
    return made is None or told is None or abs(made - told) <= _NEAR
