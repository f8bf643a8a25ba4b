r"""Format `bytes`: ``{"features":[spec, …]}\n<packed tensors>\n`` to us, only the advice's bytes to the compiler."""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import ElementType, Layout, TensorSpec
from policybridge_serdes.checks import decode_json
from policybridge_serdes.interactive import MAX_LINE
from policybridge_serdes.specs import SpecFields
from policybridge_server.mlbridge.pipes.formats import ParsedMessage


class _Header(msgspec.Struct):
    features: list[SpecFields]


_HEADER: Final = msgspec.json.Decoder(_Header)


class BytesFormat:
    """LLVM's header and tensors in every message; the header is parsed when it changes."""

    refusal = b"\xff" * 8
    """A length that no string can have. The compiler throws `std::length_error`, catches it nowhere, and ends."""

    def __init__(self) -> None:
        self._header: bytes | None = None
        self._layout = Layout(())

    def read(self, message: bytes) -> ParsedMessage:
        """Read the tensors by the header."""
        header = self._header
        if header is None or not message.startswith(header):
            header = self._describe(message)
        start, layout = len(header), self._layout
        if len(message) != start + layout.size + 1 or message[-1] != 10:
            raise InvalidError(
                f"the features take {layout.size} bytes and a newline; {len(message) - start} bytes follow the header"
            )
        packed = message[start:-1]
        return ParsedMessage(layout, np.ndarray(1, layout.dtype, packed), packed)

    def _describe(self, message: bytes) -> bytes:
        end = message.find(b"\n", 0, MAX_LINE) + 1
        if not end:
            if len(message) >= MAX_LINE:
                raise TooLargeError(f"a header is longer than {MAX_LINE} bytes")
            raise InvalidError(f'a message starts with one line {{"features":[…]}}; no line ends in {message[:60]!r}')
        fields = decode_json(_HEADER, message[: end - 1], "a header of ML-Compiler-Bridge").features
        layout = Layout.from_json(fields)
        for spec in layout.specs:
            if not spec.fixed or spec.type is ElementType.BOOL:
                raise InvalidError(f"{spec}: in the format bytes a feature holds numbers and has a size")
        self._header, self._layout = message[:end], layout
        return self._header

    def reply(self, spec: TensorSpec, advice: npt.NDArray[np.generic]) -> bytes:
        """Give the advice's bytes; a string's are its UTF-8."""
        if spec.type.is_text:
            (text,) = advice.tolist()
            return text.encode() if isinstance(text, str) else bytes(text)
        return advice.tobytes()
