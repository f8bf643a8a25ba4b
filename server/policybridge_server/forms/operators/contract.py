"""The inputs and the results of an operator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policybridge_core.errors import UnsupportedError
from policybridge_server.forms.builder import Builder, Tensor


@dataclass(frozen=True)
class Operation:
    """One operator to bring into the form.

    Attributes:
        build: takes the instructions.
        operator: its name in ONNX.
        inputs: its tensors; ``None`` for an optional one that is left out.
        outputs: how many it gives.
        attributes: by name.
        opset: the version of ONNX's operators.

    """

    build: Builder
    operator: str
    inputs: Sequence[Tensor | None]
    outputs: int
    attributes: Mapping[str, Any]
    opset: int

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs that are not left out."""
        return [each for each in self.inputs if each is not None]

    def optional(self, place: int) -> Tensor | None:
        """Give an input that may be left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def constant(self, place: int, attribute: str) -> Any:
        """Give the constant that newer opsets have as an input, older ones as an attribute; ``None`` without it.

        Raises:
            UnsupportedError: the input depends on the observation.

        """
        tensor = self.optional(place)
        if tensor is None:
            return self.attributes.get(attribute)
        if tensor.value is None:
            raise self.refused(f"its {attribute} depend on the observation")
        return tensor.value

    def refused(self, why: str) -> UnsupportedError:
        """Make the error for a use of the operator that has no form."""
        return UnsupportedError(f"the operator {self.operator} has no portable form where {why}")


Operator = Callable[[Operation], Sequence[Tensor]]
