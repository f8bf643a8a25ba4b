"""A backend whose artifact is a file with one number, which is always the advice."""

from pathlib import Path
from typing import ClassVar

import numpy as np

from policybridge_core.errors import PreconditionError
from policybridge_serdes import Values
from policybridge_server.backends.contract import Batch, ModelSignature, declared_signature
from policybridge_server.repository import PolicyConfig


class ConstantBackend:
    """Loads ``number.txt``."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "Constant":
        """Load the number."""
        try:
            return Constant(int((artifact / "number.txt").read_text()), declared_signature(config))
        except (OSError, ValueError) as error:
            raise PreconditionError(f"{artifact / 'number.txt'}: {error}") from error


class Constant:
    """The number."""

    batched = True
    inline: bool | None = True

    def __init__(self, number: int, signature: ModelSignature) -> None:
        self.signature = signature
        self._number = number

    def evaluate(self, batch: Batch) -> Values:
        """Answer every observation with the number."""
        advice: Values = np.zeros(len(batch.values), batch.advice.dtype)
        (spec,) = batch.advice.specs
        advice[spec.name] = self._number
        return advice

    def close(self) -> None:
        """Give nothing back: a number holds nothing."""
