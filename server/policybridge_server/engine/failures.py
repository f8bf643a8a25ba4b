"""A policy's failures: an error for the client, and one log record for each failing place.

A policy may raise any exception, also ``SystemExit`` and ``KeyboardInterrupt``. It fails only the session
that asked.
"""

import logging
from typing import Final

from policybridge_core.authors import describe, frames, text_of, traceback_of
from policybridge_core.errors import PolicyFailedError

_LOG = logging.getLogger(__name__)

_MOST_PLACES: Final = 16
"""Places whose traceback is logged for one version; failures at further places are only counted."""

_Place = tuple[str, str, int, str]


class Failures:
    """Counts the failures of one version. Usable from any thread.

    Attributes:
        count: how many evaluations failed.

    Args:
        name: of the version, for the log.

    """

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name
        self._logged: set[_Place] = set()

    def add(self, error: BaseException) -> PolicyFailedError:
        """Count ``error``, and return the client's error. Log each place's first traceback."""
        self.count += 1
        place = _place(error)
        if place not in self._logged and len(self._logged) < _MOST_PLACES:
            self._logged.add(place)
            _LOG.error("policy %s failed; this place is not logged again\n%s", self._name, traceback_of(error))
        elif str(self.count).strip("0") == "1":
            _LOG.warning("policy %s has failed %d times", self._name, self.count)
        if isinstance(error, PolicyFailedError):
            # A copy: the error may be of a class of the policy's own.
            return PolicyFailedError(text_of(error) or "the policy failed")
        return PolicyFailedError(f"the policy failed: {describe(error)}")


def _place(error: BaseException) -> _Place:
    first = error if error.__cause__ is None else error.__cause__
    passed = list(frames(first.__traceback__))
    file, line = passed[-1][:2] if passed else ("", 0)
    return type(first).__name__, file, line, _notes(error)


def _notes(error: BaseException) -> str:
    """Give the notes: an error of another process has that process's traceback as its note."""
    try:
        return "".join(error.__notes__)
    except BaseException:
        # An author may have set the notes to any object.
        return ""
