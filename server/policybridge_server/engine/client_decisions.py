"""Decisions that a client made by the policy's form: their record, and the check of a sample of them."""

import logging
import random
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import ElementType, Signature, Values
from policybridge_server.backends.contract import SessionView
from policybridge_server.counters import VersionCounters
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision
from policybridge_server.engine.loaded_model import LoadedModel
from policybridge_server.engine.recorder import Recording

_LOG = logging.getLogger(__name__)

_RANDOM: Final = random.SystemRandom()


class ClientDecisions:
    """Takes the decisions that the client of one session made for one signature. For the loop thread.

    The server asks the model again for one decision of each message, drawn at random, and counts those that differ. So
    a client whose evaluation is wrong is found; a client that reports decisions which it did not follow is not.

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
        specs = (*signature.features.specs, signature.advice)
        if not all(spec.fixed for spec in specs) or any(spec.type is ElementType.BOOL for spec in specs):
            raise InvalidError(
                "a client decides by itself on features and an advice of fixed size, without bools, alone"
            )
        self._session = session
        self._features = signature.features.size
        self._advice = signature.advice_layout
        self._choices = None if model.head is None else model.head.count
        self._batcher = batcher
        self._recording = recording
        self._check = _Check(session, model.counters)
        self._counters = model.counters

    def take(self, count: int, nanoseconds: int, payload: bytes) -> None:
        """Record ``count`` decisions: their packed observations, and then their packed advices.

        Args:
            count: how many there are.
            nanoseconds: the time that they took together.
            payload: their bytes.

        Raises:
            InvalidError: the bytes are of another number of decisions, or an advice is none of the policy's choices.

        """
        size, middle = self._features, count * self._features
        if len(payload) != middle + count * self._advice.size:
            raise InvalidError(
                f"{len(payload)} bytes are not {count} decisions of {size} and {self._advice.size} bytes"
            )
        advices = np.frombuffer(payload, self._advice.dtype, count, middle)
        self._check_choices(advices)
        self._counters.made_by_clients += count
        if self._recording is not None:
            each, decided = nanoseconds // count, self._recording.decided
            for row in range(count):
                decided(payload[row * size : (row + 1) * size], advices[row : row + 1], None, each)
        drawn = _RANDOM.randrange(count)
        self._check.expect(advices[drawn : drawn + 1])
        self._batcher.submit(Decision(self._session, payload[drawn * size : (drawn + 1) * size], self._check))

    def _check_choices(self, advices: Values) -> None:
        choices = self._choices
        if choices is None:
            return
        given: npt.NDArray[Any] = advices[self._advice.specs[0].name]
        if (given < 0).any() or (given >= choices).any():
            raise InvalidError(f"the policy's advice is one of 0 to {choices - 1}, and a reported one is not")


class _Check:
    """The sink of the decisions that are made again."""

    def __init__(self, session: SessionView, counters: VersionCounters) -> None:
        self._session = session
        self._counters = counters
        self._expected: list[Values] = []
        self._told = False

    def expect(self, advice: Values) -> None:
        self._expected.append(advice)

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        self._counters.checked += 1
        if advice.tobytes() != self._expected.pop(0).tobytes():
            self._differs("it reported another advice than the policy gives")

    def fail(self, error: PolicyBridgeError) -> None:
        self._counters.checked += 1
        self._expected.pop(0)
        self._differs(f"the policy fails where it reported an advice: {error}")

    def _differs(self, what: str) -> None:
        self._counters.differing += 1
        if not self._told:
            self._told = True
            session, version = self._session, self._session.policy
            said = f"a client of {version.name}@{version.version} decides by itself: {what}"
            _LOG.warning("%s", said, extra={"session": session.id})
