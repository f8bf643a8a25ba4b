"""The numbers of a policy's versions: no number is given twice, also if a repository is restored from an older copy."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.publishing.peers import Peers
from policybridge_server.publishing.permission import Permission
from policybridge_server.repository import StoredPolicy
from policybridge_server.repository.numbers import (
    LONGEST_EPOCH,
    MOST_KEPT,
    MOST_SKIPPED,
    NUMBERS,
    Numbers,
    begin_epoch,
    is_digest,
)
from policybridge_server.repository.retired import is_retired

_LOG = logging.getLogger(__name__)


class Numbering:
    """Keeps the `Numbers` of a running server's policies. For the loop thread.

    Args:
        opener: opens the sessions that get the versions.
        permission: the changes that the operator allows.
        peers: the server's other processes.

    """

    def __init__(self, opener: SessionOpener, permission: Permission, peers: Peers) -> None:
        self._opener = opener
        self._repository = opener.engine.repository
        self._permission = permission
        self._peers = peers

    async def begin(self, policies: Iterable[StoredPolicy]) -> None:
        """Note for each policy of this server's own folders which numbers were given; see `Numbers`."""
        for policy in policies:
            try:
                numbers = await asyncio.to_thread(self.numbered, policy, [*policy.versions, *policy.refused])
            except OSError as error:
                # It may be one of several repositories, and the others can be written.
                _LOG.warning("the numbers of %s are not written: %s", policy.name, error)
                continue
            if numbers == policy.numbers:
                continue
            if policy.numbers is not None:
                _LOG.warning(
                    "the repository of %s is a copy: what was published after the copy was made is not in it. "
                    "Replicas keep such versions; `policybridge policies replicas` names them",
                    policy.name,
                )
            self._repository.put(replace(policy, numbers=numbers))

    def numbered(self, policy: StoredPolicy, numbers: Iterable[int]) -> Numbers | None:
        """Give a policy's numbers; they are written if this server changes the folder, unless it copies an address."""
        is_written = self._permission.allowed and policy.folder.parent in self._repository.writable
        if not is_written or self._repository.origin(policy.folder) is not None:
            return policy.numbers
        return begin_epoch(policy.folder, numbers, policy.numbers)

    async def heard(self, kept: Iterable[tuple[PolicyVersion, str]]) -> None:
        """Take the news that a replica keeps versions, with their epochs, that this repository does not have."""
        for version, epoch in kept:
            async with self._opener.changing():
                policy = self._repository.find(version.name)
                if policy is None or policy.numbers is None or not self._permission.allowed:
                    continue
                if not _is_news(policy, policy.numbers, version, epoch):
                    continue
                number = version.version
                await self._put(
                    replace(policy, elsewhere={**policy.elsewhere, number: (epoch, version.digest)}),
                    _skipped(policy.numbers, policy.given, number, epoch),
                )
                _LOG.warning(
                    "a replica keeps %s@%d (%s), which this server never had; `policybridge policies adopt` takes it, "
                    "`retire` removes it there",
                    version.name,
                    number,
                    version.digest,
                )

    async def drop(self, policy: StoredPolicy, numbers: Numbers, number: int) -> None:
        """Let replicas retire a version that this server never had."""
        epoch, _ = policy.elsewhere[number]
        dropped = {**numbers.dropped, epoch: [*numbers.dropped.get(epoch, ()), number]}
        elsewhere = {each: told for each, told in policy.elsewhere.items() if each != number}
        await self._put(replace(policy, elsewhere=elsewhere), msgspec.structs.replace(numbers, dropped=dropped))

    async def _put(self, policy: StoredPolicy, numbers: Numbers) -> None:
        if numbers != policy.numbers:
            await asyncio.to_thread(NUMBERS.write, policy.folder, numbers)
        self._repository.put(replace(policy, numbers=numbers))
        await self._peers.take(self._repository.policy(policy.name))


def _is_news(policy: StoredPolicy, numbers: Numbers, version: PolicyVersion, epoch: str) -> bool:
    number, is_known = version.version, policy.elsewhere.get(version.version) == (epoch, version.digest)
    is_here = number in policy.versions or number in policy.refused or numbers.had(number, epoch)
    # A replica may err, or lie: it makes the leader skip few numbers and remember few versions.
    is_sound = is_digest(version.digest) and len(epoch) <= LONGEST_EPOCH
    has_room = len(policy.elsewhere) < MOST_KEPT and 0 < number <= policy.given + MOST_SKIPPED
    return not (is_known or is_here) and is_sound and has_room


def _skipped(numbers: Numbers, given: int, number: int, epoch: str) -> Numbers:
    """Give the numbers after the news that a replica keeps a version of this number and epoch."""
    if epoch == numbers.epoch:
        # The repository is older than its replicas, though it looks like no copy.
        return numbers.next_epoch(given, number)
    return msgspec.structs.replace(numbers, highest=max(numbers.highest, given, number))


def next_number(policy: StoredPolicy) -> int:
    """Give the number of the policy's next version."""
    number = policy.given + 1
    # A folder may be being copied in, or a retired one being removed.
    while (policy.folder / str(number)).exists() or is_retired(policy.folder / str(number)):
        number += 1
    return number


def kept_elsewhere(policy: StoredPolicy, number: int) -> str:
    """Give the digest of a version that only replicas keep.

    Raises:
        PreconditionError: no replica keeps a version of this number.

    """
    if number not in policy.elsewhere:
        raise PreconditionError(f"no replica keeps a {policy.name}@{number} that this server does not have")
    return policy.elsewhere[number][1]
