"""Conditions on the outcome of a roll-out: ``text < -0.1%``."""

import re
from dataclasses import dataclass
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_core.session import check_length

FAILED: Final = "failed"
"""Instead of an outcome's name: the share of the compilations whose status is neither ``ok`` nor empty."""

_FORM: Final = re.compile(
    r"\s*(?P<name>[^<>]*[^<>\s])\s*(?P<sign>[<>])\s*(?P<limit>[-+]?\d+(\.\d*)?([eE][-+]?\d+)?)\s*%\s*"
)


@dataclass(frozen=True)
class Condition:
    """How an outcome of the new version must have changed.

    Attributes:
        name: the outcome's name, or `FAILED`.
        below: whether the change must be below the limit; else it must be above.
        limit: limit of the relative change of the outcome's sum over all files; for `FAILED`, of the difference.

    """

    name: str
    below: bool
    limit: float

    def holds(self, low: float, high: float) -> bool:
        """Whether it holds for every change from ``low`` to ``high``."""
        return high < self.limit if self.below else low > self.limit

    def refuted(self, low: float, high: float) -> bool:
        """Whether it holds for no change from ``low`` to ``high``."""
        return low >= self.limit if self.below else high <= self.limit


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        InvalidError: it is not of the form ``NAME < NUMBER%`` or ``NAME > NUMBER%``.

    """
    check_length(text, "a condition")
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidError(f"the condition {text!r} is not NAME < NUMBER% or NAME > NUMBER%, such as text < -0.1%")
    return Condition(match["name"], match["sign"] == "<", float(match["limit"]) / 100)
