"""Decisions that a client made by the policy's form: their record, and the check of a sample of them."""

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import Signature, Values
from policybridge_serdes.interactive import Decided
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.recorder import Recording

_LOG = logging.getLogger(__name__)

_RANDOM: Final = random.SystemRandom()

_ONE_OF: Final = 64
"""The server makes one of this many decisions again, and one of each larger message."""


class ClientDecisions:
    """Takes the decisions that the client of one session made for one signature. For the loop thread.

    The server asks the model again for a sample, drawn at random, and counts those that differ: one of 64 decisions, or
    one of a message that has more. So a client whose evaluation is wrong is found; a client that reports decisions
    which it did not follow is not.

    Args:
        session: of the client.
        signature: of the decisions.
        model: decides for clients of this signature.
        batcher: of the same.
        recording: the session's record; ``None``: it is not recorded.

    Raises:
        PreconditionError: the session explores.
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
        if session.exploration is not None:
            raise PreconditionError("in a session that explores the server makes each decision")
        if not (signature.features.plain and signature.advice_layout.plain):
            raise InvalidError("features and an advice by which a client decides have fixed sizes and no bools")
        self._session = session
        self._features = signature.features.size
        self._advice = signature.advice_layout
        self._choices = None if model.head is None else model.head.count
        self._batcher = batcher
        self._recording = recording
        self._counters = model.counters
        self._told = False

    def take(self, decided: Decided, taken: Callable[[], None]) -> None:
        """Record decisions, and call ``taken`` when the next may come: a drawn one is made again, the ledger keeps up.

        Raises:
            InvalidError: the bytes are of another number of decisions, or an advice is none of the policy's choices.

        """
        count, payload = decided.count, decided.payload
        size, middle = self._features, count * self._features
        if len(payload) != middle + count * self._advice.size:
            raise InvalidError(
                f"{len(payload)} bytes are not {count} decisions of {size} and {self._advice.size} bytes"
            )
        advices = np.frombuffer(payload, self._advice.dtype, count, middle)
        self._check_choices(advices)
        self._counters.made_by_clients += count
        if self._recording is not None:
            self._recording.reported(count, payload[:middle], payload[middle:], decided.nanoseconds // count)
            # Reports come faster than a disk takes them. Else they would fill the room of all sessions.
            taken = partial(self._recording.keep_pace, taken)
        drawn = _RANDOM.randrange(max(count, _ONE_OF))
        if drawn >= count:
            taken()
            return
        check = _Check(self, advices[drawn : drawn + 1], taken)
        self._batcher.submit(Decision(self._session, payload[drawn * size : (drawn + 1) * size], check))

    def checked(self, difference: str) -> None:
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

    def _check_choices(self, advices: Values) -> None:
        choices = self._choices
        if choices is None:
            return
        given: npt.NDArray[Any] = advices[self._advice.specs[0].name]
        if (given < 0).any() or (given >= choices).any():
            raise InvalidError(f"the policy's advice is one of 0 to {choices - 1}, and a reported one is not")


class _Check:
    """The sink of a decision that is made again."""

    def __init__(self, decisions: ClientDecisions, reported: Values, taken: Callable[[], None]) -> None:
        self._decisions = decisions
        self._reported = reported
        self._taken = taken

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        same = advice.tobytes() == self._reported.tobytes()
        self._ended("" if same else "it reported another advice than the policy gives")

    def fail(self, error: PolicyBridgeError) -> None:
        self._ended(f"the policy fails where it reported an advice: {error}")

    def _ended(self, difference: str) -> None:
        self._decisions.checked(difference)
        self._taken()
