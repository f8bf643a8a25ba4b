"""Decodes the lines that PolicyBridge's clients add to LLVM's interactive stream; `lines` writes them."""

from typing import Annotated, Final, Literal

import msgspec

from policybridge_core.session import LONGEST_NAME, Outcome
from policybridge_serdes.checks import decode_json
from policybridge_serdes.limits import MessageLimits

MOST_DECIDED: Final = 1024
"""Decisions of the client in one message, at most: the server reads them in about a millisecond."""


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


class DecidedLine(msgspec.Struct):
    """The line that announces decisions of the client."""

    decided: Annotated[int, msgspec.Meta(ge=1, le=MOST_DECIDED)]
    nanoseconds: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    chances: bool = False


class _FormJson(msgspec.Struct):
    form: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class _EndJson(msgspec.Struct):
    end: Literal[True]


_OUTCOME_LINE: Final = msgspec.json.Decoder(_OutcomeJson)
_DECIDED_LINE: Final = msgspec.json.Decoder(DecidedLine)
_FORM_LINE: Final = msgspec.json.Decoder(_FormJson)
_END_LINE: Final = msgspec.json.Decoder(_EndJson)


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
