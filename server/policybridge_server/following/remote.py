"""The source that is looked at from time to time: a repository at an address of fsspec."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyVersion
from policybridge_server.following.source import SourceChange
from policybridge_server.following.state import Lack, PolicyState
from policybridge_server.repository.aliases import LARGEST
from policybridge_server.repository.remote import ALIASES, POLICY, RemoteRepository, numbers
from policybridge_server.repository.rollout import ROLLOUT, Rollout
from policybridge_server.repository.staging import Staging
from policybridge_server.repository.toml import parse_toml

_LOG = logging.getLogger(__name__)

_AGAIN: Final = 30.0
"""Seconds before a version that could not be had is fetched again, unless its policy changes."""


class RemoteSource:
    """See `Source`.

    Args:
        repository: the repository at the address.
        interval: seconds between two looks.
        may_be_new: whether it may be empty at the first look.
        clock: gives seconds, as `time.monotonic` does.

    """

    polled = True

    def __init__(
        self,
        repository: RemoteRepository,
        interval: float,
        *,
        may_be_new: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._may_be_new = may_be_new
        self.name = repository.address
        self._repository = repository
        self._interval = interval
        self._seen: dict[str, dict[str, str]] = {}
        self._digests: dict[tuple[str, int, str], str] = {}
        self._again: dict[str, float] = {}
        self._closed = threading.Event()

    def changes(self) -> Iterator[SourceChange]:
        """Give all policies, and then those that have changed since the look before."""
        is_first = True
        while not self._closed.is_set():
            changed = list(self._changed())
            if is_first and not self._seen and not self._may_be_new:
                _LOG.warning("%s holds no policy", self.name)
            if changed or is_first:
                yield SourceChange(changed)
            is_first = False
            self._closed.wait(self._interval)

    def _changed(self) -> Iterator[PolicyState]:
        now = self._clock()
        for name in [name for name, when in self._again.items() if when <= now]:
            del self._again[name]
            self._seen.pop(name, None)
        for name in self._repository.policies():
            entries = self._repository.entries(name)
            # The first version of a new policy comes after its policy.toml.
            is_there = POLICY in entries and (name in self._seen or bool(numbers(entries)))
            if is_there and self._seen.get(name) != entries:
                self._seen[name] = entries
                try:
                    yield self._state(name, entries)
                except PreconditionError as error:
                    _LOG.warning("policy %s stays unchanged: %s", name, error)
                except PolicyBridgeError:
                    del self._seen[name]
                    raise

    def _state(self, name: str, entries: dict[str, str]) -> PolicyState:
        read = self._repository.read
        aliases = parse_toml(read(name, ALIASES), f"{self.name}/{name}/{ALIASES}", dict[str, int], LARGEST)
        versions = {number: self._digest(name, number, mark) for number, mark in numbers(entries).items()}
        config = read(name, POLICY).decode(errors="replace")
        return PolicyState(name, config, aliases, self._rollout(name, entries), versions)

    def _rollout(self, name: str, entries: dict[str, str]) -> Rollout | None:
        data = self._repository.read(name, ROLLOUT.name) if ROLLOUT.name in entries else b""
        try:
            return msgspec.json.decode(data, type=Rollout) if data else None
        except msgspec.DecodeError as error:
            raise PreconditionError(f"{self.name}/{name}/{ROLLOUT.name} cannot be used: {error}") from error

    def _digest(self, name: str, number: int, mark: str) -> str:
        """Return the digest of a version's manifest; a manifest is read once."""
        known = self._digests.get((name, number, mark))
        if known is None:
            try:
                known = self._repository.manifest(name, number).digest
            except PreconditionError:
                # Nothing has this digest, so that the version is lacking, with the reason when it is fetched.
                return ""
            self._digests[name, number, mark] = known
        return known

    def fetch(self, policy: str, number: int, digest: str, staging: Staging) -> None:  # noqa: ARG002
        """Write the files of a version; the caller checks them."""
        self._repository.fetch(policy, number, staging)

    def adopted(
        self,
        revision: int,  # noqa: ARG002
        lacks: Sequence[Lack],
        kept: Sequence[tuple[PolicyVersion, str]] = (),  # noqa: ARG002
    ) -> None:
        """Look again later at policies with missing parts."""
        for lack in lacks:
            if lack.passing:
                self._again.setdefault(lack.policy, self._clock() + (_AGAIN if lack.version else self._interval))

    def close(self) -> None:
        """End `changes`."""
        self._closed.set()
