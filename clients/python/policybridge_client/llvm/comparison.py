"""Comparing the observations of a replay with the recorded ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policybridge_client.llvm.defaults import Defaults
from policybridge_core.errors import InvalidError
from policybridge_serdes import Signature
from policybridge_serdes.interactive import Context, Event, Header, InteractiveReader


@dataclass(frozen=True)
class RecordedDecision:
    """A recorded decision: the observation as the policy saw it, and the policy's advice."""

    signature: Signature
    context: str
    observation: bytes
    advice: bytes


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        decisions: the number of decisions whose observations were the same as recorded.
        difference: a description of the first difference; ``None`` if there is none.
        step: the number of the first decision that differs, counted from 1; ``None`` if the difference is elsewhere.
        object: whether the object file was compared and is the same.

    """

    decisions: int
    difference: str | None = None
    step: int | None = None
    object: bool = False

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None


class Comparison:
    """Compares LLVM's output with the record, piece by piece.

    Args:
        decisions: the recorded decisions.
        defaults: adds LLVM's own decision to each observation, as the host did in the recording.

    """

    def __init__(self, decisions: Sequence[RecordedDecision], defaults: Defaults) -> None:
        self.decisions = 0
        self._recorded = decisions
        self._defaults = defaults
        self._reader = InteractiveReader()
        self._signature: Signature | None = None
        self._context = ""
        self._difference: str | None = None

    def take(self, data: bytes) -> bool:
        """Compare the next bytes; return false as soon as something differs."""
        try:
            for event in self._reader.feed(data) if data else ():
                if self._difference is None:
                    self._event(event)
        except InvalidError as error:
            self._difference = str(error)
        return self._difference is None

    def _event(self, event: Event) -> None:
        if isinstance(event, bytes):
            self._difference = self._observation(self._defaults.completed(event))
            self.decisions += self._difference is None
        elif isinstance(event, Header):
            self._signature = self._defaults.extended(event.signature)
        elif isinstance(event, Context):
            self._context = event.name

    def _observation(self, payload: bytes) -> str | None:
        if self.decisions == len(self._recorded):
            return f"the compiler asks for more than the {len(self._recorded)} recorded decisions"
        recorded = self._recorded[self.decisions]
        if recorded.signature != self._signature:
            return "the compiler's features differ from the recorded ones"
        # If LLVM gives an empty name, the host recorded the source's.
        if self._context and recorded.context != self._context:
            return f"the compiler asks in the context {self._context!r}; the recorded one is {recorded.context!r}"
        if recorded.observation != payload:
            return f"the observation differs in {_different(recorded, payload)}"
        return None

    def result(self) -> Replayed:
        """Return the first difference."""
        return Replayed(self.decisions, self._difference, self.decisions + 1)

    def ended(self) -> Replayed:
        """Return the result after the compiler has ended."""
        if self.decisions < len(self._recorded):
            fewer = f"the compiler asked for {self.decisions} of the {len(self._recorded)} recorded decisions"
            return Replayed(self.decisions, fewer, self.decisions + 1)
        return Replayed(self.decisions)


def _different(recorded: RecordedDecision, payload: bytes) -> str:
    dtype = recorded.signature.features.dtype
    before, now = (np.ndarray(1, dtype, data) for data in (recorded.observation, payload))
    return ", ".join(name for name in dtype.names or () if before[name].tobytes() != now[name].tobytes())
