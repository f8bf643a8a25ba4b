"""The JSON lines of LLVM's interactive stream, read and written."""

from functools import lru_cache
from typing import Annotated, Final

import msgspec

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_core.session import LONGEST_NAME, Outcome
from policybridge_core.text import is_unicode
from policybridge_serdes.checks import decode_json
from policybridge_serdes.limits import MessageLimits
from policybridge_serdes.specs import Layout, Signature, SpecFields, TensorSpec

MAX_LINE: Final = 1 << 20
"""Longest accepted line in bytes, newline included. LLVM's longest known line, the eviction header, has 2 KB."""

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


class _FormJson(msgspec.Struct):
    form: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


_HEADER: Final = msgspec.json.Decoder(_HeaderJson)
_CONTEXT_LINE: Final = msgspec.json.Decoder(_ContextJson)
_OUTCOME_LINE: Final = msgspec.json.Decoder(_OutcomeJson)
_DECIDED_LINE: Final = msgspec.json.Decoder(DecidedLine)
_FORM_LINE: Final = msgspec.json.Decoder(_FormJson)
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


def header_line(signature: Signature) -> bytes:
    """Make the header line that LLVM would write, for other clients."""
    fields = {
        "features": [spec.to_json() for spec in signature.features.specs],
        "advice": signature.advice.to_json(),
    }
    return msgspec.json.encode(fields) + b"\n"


def context_line(name: str) -> bytes:
    """Make the line that starts a context.

    Raises:
        InvalidError: the name is not valid Unicode text.

    """
    if not is_unicode(name):
        raise InvalidError(f"a context's name is no Unicode text: {name!a}")
    return msgspec.json.encode({"context": name}) + b"\n"


def observation_lines(number: int, payload: bytes, *, fixed: bool) -> bytes:
    """Make the lines of one observation; ``payload`` is in the bitstream's session form."""
    if fixed:
        return b'{"observation":%d}\n%b\n' % (number, payload)
    return b'{"observation":%d,"bytes":%d}\n%b\n' % (number, len(payload), payload)


def decided_lines(count: int, nanoseconds: int, payload: bytes) -> bytes:
    """Make the lines that report decisions of the client."""
    return b'{"decided":%d,"nanoseconds":%d}\n%b\n' % (count, nanoseconds, payload)


def form_line(digest: str) -> bytes:
    """Make the line that asks for a form."""
    return msgspec.json.encode({"form": digest}) + b"\n"


def outcome_line(outcome: Outcome) -> bytes:
    """Make the line that reports the outcome of the compilation."""
    return msgspec.json.encode({"outcome": outcome_fields(outcome)}) + b"\n"


def outcome_fields(outcome: Outcome) -> dict[str, object]:
    """Give an outcome as it stands in JSON."""
    fields: dict[str, object] = {"values": dict(outcome.values), "status": outcome.status}
    if outcome.contexts:
        fields["contexts"] = {name: dict(values) for name, values in outcome.contexts.items()}
    return fields
