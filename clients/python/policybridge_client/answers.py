"""Answers without a server, for compilations of this process."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from policybridge_core.closing import Closing
from policybridge_core.errors import UnsupportedError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values


class Answers(Closing):
    """A `Connection` without a server, which is also its one session; a subclass answers in `evaluate`."""

    id = "answers"
    policy = PolicyVersion("answers", 1, "")
    decides: Sequence[str] = ()
    log_probability: float | None = None

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> Self:  # noqa: ARG002
        """Begin a compilation, or its next signature."""
        self.begin(signature, options)
        return self

    def begin(self, signature: Signature, options: SessionOptions) -> None:  # noqa: ARG002
        """Prepare for observations with this signature."""
        self._name = signature.advice.name
        self._advice: Values = np.zeros(1, signature.advice_layout.dtype)

    def advice(self, number: float) -> Values:
        """Return one record of the advice, which is a number; the next call overwrites it."""
        self._advice[self._name] = number
        return self._advice

    def evaluate(self, observation: Values) -> Values:
        """Return one record of the advice."""
        raise NotImplementedError

    def check(self) -> None:
        """Do nothing: there is no server."""

    def context(self, name: str) -> None:
        """Do nothing."""

    def report(self, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: there is no ledger."""
        raise UnsupportedError("without a server there is no ledger")

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: there is no ledger."""
        raise UnsupportedError("without a server there is no ledger")

    def close(self) -> None:
        """Do nothing."""
