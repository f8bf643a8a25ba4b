"""What a form says, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from policybridge_forms.parts import Feature, Forest, Head, Instruction, Operand
from policybridge_serdes import TensorSpec


@dataclass(frozen=True)
class Content:
    """What a form says.

    Attributes:
        digest: that of the policy version, 32 bytes.
        features: of the observation, in the order of their places.
        observation: bytes of one observation.
        work: bytes of the tensors that the instructions write.
        constants: the tensors that do not depend on the observation.
        forests: that the instructions name by their numbers.
        instructions: in their order.
        result: where the last tensor lies.
        advice: the specification of the answer.
        head: how the result becomes advice.

    """

    digest: bytes
    features: Sequence[Feature]
    observation: int
    work: int
    constants: bytes
    forests: Sequence[Forest]
    instructions: Sequence[Instruction]
    result: Operand
    advice: TensorSpec
    head: Head

    @cached_property
    def record(self) -> np.dtype[Any]:
        """The record of one observation, with a field for each feature; a bool is a uint8."""
        fields: Any = {
            "names": [each.spec.name for each in self.features],
            "formats": [(plain(each.spec.type.dtype), each.spec.shape) for each in self.features],
            "offsets": [each.offset for each in self.features],
            "itemsize": self.observation,
        }
        made: np.dtype[Any] = np.dtype(fields)
        return made

    @property
    def results(self) -> int:
        """How many elements the result has."""
        return self.head.choices if self.head.scores.name in ("LOGITS", "PROBABILITIES") else self.advice.count


def plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Give the type whose bytes a bool has; other types are themselves."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype
