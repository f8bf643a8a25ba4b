"""Limits of a message, checked before its values are allocated."""

import sys
from dataclasses import dataclass
from typing import Final

from policybridge_core.errors import TooLargeError

DEFAULT_LIMIT: Final = 64 << 20
"""Default for the largest accepted observation, in bytes."""

LARGE: Final = 1 << 20
"""Bytes of a message whose values are views of it, not copies: copies of megabytes stall the other clients."""

Buffer = bytes | memoryview
"""Received bytes, or a part of them."""


@dataclass(frozen=True)
class MessageLimits:
    """The limits of a client's message.

    Attributes:
        observation_bytes: bytes of an observation.
        features: features of an observation.
        values: values of an observation in JSON, and strings in any form: each becomes a Python object, and takes a
            hundred times as long as a number in binary.
        outcome_values: values of an outcome, without those by context.
        context_values: values of an outcome by context, over all contexts; an empty context counts as one.

    """

    observation_bytes: int = DEFAULT_LIMIT
    features: int = 1024
    values: int = 1 << 18
    outcome_values: int = 1024
    context_values: int = 1 << 16

    def check_features(self, count: int) -> None:
        """Refuse too many features.

        Raises:
            TooLargeError: there are more than the limit.

        """
        if count > self.features:
            raise TooLargeError(f"{count} features; at most {self.features} are taken (--max-features)")

    def check_values(self, count: int) -> None:
        """Refuse too many values that are text.

        Raises:
            TooLargeError: there are more than the limit.

        """
        if count > self.values:
            raise TooLargeError(
                f"{count} values as text; at most {self.values} are taken (--max-values): send numbers in binary"
            )

    def check_json(self, data: bytes) -> None:
        """Refuse a JSON text with too many values, by its commas.

        Raises:
            TooLargeError: there are more than the limit.

        """
        if len(data) > self.values:
            self.check_values(data.count(b","))

    def check_outcome(self, count: int, by_context: int = 0) -> None:
        """Refuse an outcome of too many values; ``by_context`` is the number of those by context.

        Raises:
            TooLargeError: there are more than the limit.

        """
        if count > self.outcome_values:
            raise TooLargeError(
                f"an outcome of {count} values; at most {self.outcome_values} are taken (--max-outcome-values)"
            )
        if by_context > self.context_values:
            raise TooLargeError(
                f"an outcome of {by_context} values by context; at most {self.context_values} are taken at once "
                "(--max-context-values): report them in several outcomes"
            )


DEFAULT_LIMITS: Final = MessageLimits()

UNLIMITED: Final = MessageLimits(*[sys.maxsize] * 5)
"""For a ledger's records, and for messages that are checked already."""
