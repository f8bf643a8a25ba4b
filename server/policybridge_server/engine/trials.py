"""Which files failed under the roll-outs that run. The server knows these failures itself; no client reports them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policybridge_server.backends.contract import SessionView
from policybridge_server.repository import StoredPolicy

_FILES: Final = 10_000
"""Files of one roll-out that are remembered; failures of further files are not counted."""

_RECENT: Final = 4096
"""Sessions that are over and whose outcome may still come."""


class TrialKey(NamedTuple):
    """A roll-out while it has one share. Another share begins another trial."""

    policy: str
    version: int
    begun: float
    share: float


@dataclass
class Trial:
    """The files of one roll-out.

    Attributes:
        failed: file → whether it failed with the new version. A file counts once, by its first failure.
        well: files that the new version compiled without a failure.

    """

    failed: dict[str, bool] = field(default_factory=dict)
    well: set[str] = field(default_factory=set)

    def add(self, file: str, *, is_new: bool, has_failed: bool) -> None:
        """Count a session of ``file``."""
        if len(self.failed) + len(self.well) >= _FILES:
            return
        if has_failed:
            self.failed.setdefault(file, is_new)
            self.well.discard(file)
        elif is_new and file not in self.failed:
            self.well.add(file)

    def merge(self, other: "Trial") -> None:
        """Add the files of another process."""
        for file, is_new in other.failed.items():
            self.add(file, is_new=is_new, has_failed=True)
        for file in other.well:
            self.add(file, is_new=True, has_failed=False)


class _Taken(NamedTuple):
    key: TrialKey
    file: str
    is_new: bool


class Trials:
    """Counts failing files, for the loop thread.

    A session counts if it asked for the alias of the roll-out and has a file: the server chose its version.
    """

    def __init__(self) -> None:
        self._trials: dict[TrialKey, Trial] = {}
        self._open: dict[str, _Taken] = {}
        self._recent: dict[str, _Taken] = {}

    def opened(self, view: SessionView, policy: StoredPolicy | None) -> None:
        """Take a session if a roll-out chose its version."""
        rollout = None if policy is None else policy.shared_out
        if rollout is None or not view.file or view.alias != rollout.alias:
            return
        if view.policy.version in (rollout.version, rollout.base):
            key = TrialKey(view.policy.name, rollout.version, rollout.begun, rollout.share)
            self._begin(key)
            self._open[view.id] = _Taken(key, view.file, view.policy.version == rollout.version)

    def ended(self, view: SessionView) -> None:
        """Count a session that is over: it failed if one of its evaluations did."""
        taken = self._open.pop(view.id, None)
        if taken is None:
            return
        self._add(taken, has_failed=view.failures > 0)
        while len(self._recent) >= _RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[view.id] = taken

    def failed(self, session_id: str) -> None:
        """Count the failure of a session that somebody whose word counts reports."""
        taken = self._open.get(session_id) or self._recent.get(session_id)
        if taken is not None:
            self._add(taken, has_failed=True)

    def _begin(self, key: TrialKey) -> None:
        """Begin the trial of a session that opens now: one roll-out of a policy runs at a time, with one share."""
        if key not in self._trials:
            for old in [each for each in self._trials if each.policy == key.policy]:
                del self._trials[old]
            self._trials[key] = Trial()

    def _add(self, taken: _Taken, *, has_failed: bool) -> None:
        """Count a session, unless its trial has ended before it."""
        if taken.key in self._trials:
            self._trials[taken.key].add(taken.file, is_new=taken.is_new, has_failed=has_failed)

    @property
    def all(self) -> Mapping[TrialKey, Trial]:
        """The trials of this process."""
        return self._trials
