"""A format of ML-Compiler-Bridge's pipes: ``NAME=INTEGER`` words to us, the advice as text to the compiler."""

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Layout, TensorSpec
from policybridge_server.mlbridge.pipes.formats import ParsedMessage


class WordsFormat:
    """Words of features."""

    refusal = b"\0" * 8

    def read(self, message: bytes) -> ParsedMessage:
        """Read an observation."""
        try:
            features = {name: int(number) for name, _, number in map(_parted, message.decode().split())}
        except ValueError as error:
            raise InvalidError(f"{message!r} is not NAME=INTEGER words") from error
        layout = Layout.of(TensorSpec(name, ElementType.INT64, (1,)) for name in features)
        return ParsedMessage(layout, np.array([tuple(features.values())], layout.dtype))

    def reply(self, spec: TensorSpec, advice: npt.NDArray[np.generic]) -> bytes:
        """Write the advice."""
        return " ".join(map(str, advice.tolist())).encode()


def _parted(word: str) -> tuple[str, str, str]:
    return word.partition("=")
