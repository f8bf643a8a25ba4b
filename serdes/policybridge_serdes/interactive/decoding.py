"""Decodes the lines of LLVM's interactive stream; `lines` writes them."""

from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from policybridge_core.errors import TooLargeError
from policybridge_core.session import LONGEST_NAME, Outcome
from policybridge_serdes.checks import decode_json
from policybridge_serdes.limits import MessageLimits
from policybridge_serdes.specs import Layout, Signature, SpecFields, TensorSpec

MOST_DECIDED: Final = 1024
"""Decisions of the client in one message, at most: the server reads them in about a millisecond."""

_LARGEST_KEPT: Final = 1 << 14
"""Bytes of the longest header whose signature is kept: a client could fill the memory with headers sent once."""


class _HeaderJson(msgspec.Struct):
    features: list[SpecFields]
    advice: SpecFields


class _ContextJson(msgspec.Struct):
    context: str


class OutcomeFields(msgspec.Struct):
    """An outcome in JSON."""

    values: dict[str, float] = {}
    status: str = ""
    contexts: dict[str, dict[str, float]] = {}

    def check(self, limits: MessageLimits) -> None:
        """Check that it is not too large.

        Raises:
            TooLargeError: it is.

        """
        limits.check_outcome(len(self.values), sum(len(each) or 1 for each in self.contexts.values()))

    @property
    def outcome(self) -> Outcome:
        """The outcome.

        Raises:
            InvalidError: a name or the status is not valid Unicode text.

        """
        return Outcome(self.values, self.status, self.contexts)


class _OutcomeJson(msgspec.Struct):
    outcome: OutcomeFields


class ObservationLine(msgspec.Struct):
    """An observation's number and, where tensors vary in size, its payload's size in bytes."""

    observation: int
    bytes: int | None = None


class DecidedLine(msgspec.Struct):
    """The line that announces decisions of the client."""

    decided: Annotated[int, msgspec.Meta(ge=1, le=MOST_DECIDED)]
    nanoseconds: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    chances: bool = False


class _FormJson(msgspec.Struct):
    form: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class _EndJson(msgspec.Struct):
    end: Literal[True]


_HEADER: Final = msgspec.json.Decoder(_HeaderJson)
_CONTEXT_LINE: Final = msgspec.json.Decoder(_ContextJson)
_OUTCOME_LINE: Final = msgspec.json.Decoder(_OutcomeJson)
_DECIDED_LINE: Final = msgspec.json.Decoder(DecidedLine)
_FORM_LINE: Final = msgspec.json.Decoder(_FormJson)
_END_LINE: Final = msgspec.json.Decoder(_EndJson)
_OBSERVATION_LINE: Final = msgspec.json.Decoder(ObservationLine)


def read_header(line: bytes, limits: MessageLimits) -> Signature:
    """Read a header line.

    Raises:
        InvalidError: the line is malformed.
        TooLargeError: it is beyond the limits.

    """
    return (_kept_signature if len(line) <= _LARGEST_KEPT else _signature)(line, limits)


def _signature(line: bytes, limits: MessageLimits) -> Signature:
    header = decode_json(_HEADER, line, "a header line of LLVM's stream")
    limits.check_features(len(header.features))
    signature = Signature(Layout.from_json(header.features), TensorSpec.from_json(header.advice))
    for size in (signature.features.size, signature.advice_layout.size):
        if size > limits.observation_bytes:
            raise TooLargeError(
                f"the header promises tensors of {size} bytes; at most {limits.observation_bytes} are taken"
            )
    return signature


_kept_signature: Final = lru_cache(maxsize=128)(_signature)
"""The same compiler sends the same header in each compilation, and reading it takes as long as twenty decisions."""


def read_outcome(line: bytes, limits: MessageLimits) -> Outcome:
    """Read an outcome line.

    Raises:
        InvalidError: the line is malformed.
        TooLargeError: it is beyond the limits.

    """
    fields = decode_json(_OUTCOME_LINE, line, "an outcome line").outcome
    fields.check(limits)
    return fields.outcome


def read_decided(line: bytes) -> DecidedLine:
    """Read the line that announces decisions of the client.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_DECIDED_LINE, line, "a line that announces decisions")


def read_form(line: bytes) -> str:
    """Read the digest in the line that asks for a form.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_FORM_LINE, line, "a line that asks for a form").form


def check_end(line: bytes) -> None:
    """Check the line that ends the session.

    Raises:
        InvalidError: the line is malformed.

    """
    decode_json(_END_LINE, line, "a line that ends the session")


def read_context(line: bytes) -> str:
    """Read the name in a context line.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_CONTEXT_LINE, line, "a context line of LLVM's stream").context


def read_observation(line: bytes) -> ObservationLine:
    """Read the line that announces an observation.

    Raises:
        InvalidError: the line is malformed.

    """
    return decode_json(_OBSERVATION_LINE, line, "an observation line of LLVM's stream")
