"""The publisher: publishes and retires versions, sets aliases, and describes the repository.

Slow work is done in a thread, for one version at a time. The switch of new sessions is one step on the loop
thread, so that every session gets either the old version or the new one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.backends.contract import ModelSignature, WeightsBackend, load_backend
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.publishing.peers import Alone, Peers
from policybridge_server.publishing.permission import Permission
from policybridge_server.publishing.publication import Publication, VersionFiles
from policybridge_server.publishing.retention import Retention
from policybridge_server.publishing.rollouts import Rollouts, check_not_rolled_out
from policybridge_server.publishing.spool import Spool
from policybridge_server.repository import Limits, StoredPolicy, StoredVersion
from policybridge_server.repository.checks import check_name
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.files import folder_size
from policybridge_server.repository.numbers import (
    LONGEST_EPOCH,
    MOST_KEPT,
    MOST_SKIPPED,
    Numbers,
    begin_epoch,
    is_digest,
    write_numbers,
)
from policybridge_server.repository.reading import read_policy
from policybridge_server.repository.retired import is_retired
from policybridge_server.repository.staging import FolderInPlace, Staging
from policybridge_server.repository.toml import check_size, parse_toml

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class VersionDescription:
    """A version for people: ``signature`` is set if it is loaded, ``error`` if it is refused, or hangs."""

    policy: PolicyVersion
    bytes: int = 0
    sessions: int = 0
    signature: ModelSignature | None = None
    error: str = ""


class Publisher:
    """Changes the repository of a running server. For the loop thread.

    Args:
        opener: opens the sessions that get the versions.
        allowed: whether the operator lets clients publish.
        keep_versions: number of a policy's newest versions to keep, besides those with an alias; ``None``: all.
        peers: the server's other processes, if any.
        leader: the address of the leader, which takes the changes, if this server is a replica.

    Attributes:
        peers: likewise.
        retention: retires versions.
        rollouts: begins and ends roll-outs.

    """

    def __init__(
        self,
        opener: SessionOpener,
        *,
        allowed: bool,
        keep_versions: int | None,
        leader: str | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.peers: Peers = peers or Alone()
        self._opener = opener
        self._engine = opener.engine
        self._repository = opener.engine.repository
        self._permission = Permission(opener, allowed=allowed, leader=leader)
        self.retention = Retention(self._repository, self._engine.versions, keep_versions, self.peers)
        self.rollouts = Rollouts(opener, self._permission, self.peers)

    async def begin_epochs(self) -> None:
        """Note for each policy of this server's own folders which numbers were given; see `Numbers`."""
        for policy in self.policies():
            try:
                numbers = await asyncio.to_thread(self._numbered, policy, [*policy.versions, *policy.refused])
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

    def _numbered(self, policy: StoredPolicy, numbers: Iterable[int]) -> Numbers | None:
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
                number, is_known = version.version, policy.elsewhere.get(version.version) == (epoch, version.digest)
                is_here = number in policy.versions or number in policy.refused or policy.numbers.had(number, epoch)
                # A replica may err, or lie: it makes the leader skip few numbers and remember few versions.
                is_sound = is_digest(version.digest) and len(epoch) <= LONGEST_EPOCH
                has_room = len(policy.elsewhere) < MOST_KEPT and 0 < number <= policy.given + MOST_SKIPPED
                if is_known or is_here or not (is_sound and has_room):
                    continue
                await self._put_numbers(
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

    async def _put_numbers(self, policy: StoredPolicy, numbers: Numbers) -> None:
        if numbers != policy.numbers:
            await asyncio.to_thread(write_numbers, policy.folder, numbers)
        self._repository.put(replace(policy, numbers=numbers))
        await self.peers.take(self._repository.policy(policy.name))

    async def publish(  # noqa: PLR0913 - the header of a publication
        self,
        name: str,
        config: str,
        files: AsyncIterable[tuple[str, bytes]],
        digest: str,
        aliases: Sequence[str] = (),
        *,
        adopted: int | None = None,
    ) -> PolicyVersion:
        """Publish a version of the policy ``name``.

        Args:
            name: the policy's name.
            config: the text of ``policy.toml`` for a policy that does not exist yet; else empty, or the same.
            files: pieces of the version's files, each with its file's path; the pieces of one file follow each other.
            digest: the digest of the files.
            aliases: the aliases to move to the version.
            adopted: number of a version that replicas keep and that has these files; ``None``: a new number.

        Raises:
            InvalidError: a name or a path is not allowed, or the files have another digest.
            NotFoundError: there is no such policy, and no config for it.
            PreconditionError: the operator does not allow it, another config is in use, or the version cannot be
                loaded or does not accept the signatures of its predecessor's clients.
            TooLargeError: the version is larger than the limits.

        """
        self._permission.check(aliases)
        check_name(name)
        known = self._repository.find(name)
        policy = await self._new_policy(name, config) if known is None else self._permission.writable(name)
        if known is not None and config and await _parsed(config, "the config") != policy.usable:
            raise PreconditionError(f"policy {name!r} has another policy.toml, which all its versions share")
        staging = _staged(policy.folder, self.limits, config if known is None else "")
        async with self._publication(staging) as publication:
            async for path, data in files:
                await publication.run(partial(staging.write, path, data))
            await publication.begin()
            now = self._repository.find(name)
            if known is None and now is not None:
                raise PreconditionError(f"policy {name!r} was created at the same time; publish again, without config")
            policy = now or policy
            number = _next_number(policy) if adopted is None else adopted
            identity = None if adopted is None else _kept_elsewhere(policy, adopted)[1]
            return await publication.publish(
                policy, number, partial(staging.seal, digest), aliases=aliases, identity=identity
            )

    async def publish_weights(
        self, base: PolicyReference, weights: AsyncIterable[bytes], aliases: Sequence[str] = ()
    ) -> PolicyVersion:
        """Publish the files of the version ``base`` with other ``weights``: tensors by name, safetensors in pieces.

        Nothing is read of them before it is clear that they may be published.

        Raises:
            NotFoundError: there is no such base.
            InvalidError: ``weights`` are not safetensors.
            PreconditionError: the operator does not allow it, the backend cannot replace weights, or the tensors are
                not those of the base.
            TooLargeError: the weights are larger than the limits.

        """
        self._permission.check(aliases)
        folder = self._permission.writable(base.name).folder
        self._repository.resolve(base)
        staging = _staged(folder, self.limits)
        async with self._publication(staging) as publication:
            spool = Spool(staging.folder, self.limits.bytes)
            publication.undo(spool.close)
            await spool.fill(weights, publication)
            await publication.begin()
            policy, stored, loaded = (
                self._permission.writable(base.name),
                self._repository.resolve(base),
                self._engine.loaded(base),
            )
            return await publication.publish(
                policy,
                _next_number(policy),
                partial(_seal_with_weights, staging, stored, spool),
                aliases=aliases,
                probed=loaded.probe if loaded else None,
            )

    async def add_policy(self, folder: Path) -> None:
        """Add the policy of the copied folder ``folder``, without its versions."""
        async with self._opener.changing():
            # A publication may have made it, with versions that were acknowledged, or undone it since it was found.
            known = self._repository.find(folder.name)
            if (known and not isinstance(known.config, PreconditionError)) or not folder.is_dir():
                return
            policy = await asyncio.to_thread(read_policy, folder)
            self._repository.put(policy)
            self._engine.versions.check_backend(policy.name)
            await self.peers.take(self._repository.policy(policy.name))

    async def publish_folder(self, folder: Path) -> None:
        """Publish the version of the copied folder ``folder``.

        Raises:
            PolicyBridgeError: it is refused; a client that asks for this version gets the same message.

        """
        files = FolderInPlace(folder, self.limits)
        async with self._publication(files) as publication:
            await publication.begin()
            policy, number = self._repository.policy(folder.parent.name), int(folder.name)
            # Another process may have undone its publication.
            if number in policy.versions or self.retention.is_retired(folder) or not folder.is_dir():
                return
            try:
                await publication.publish(policy, number, files.seal)
            except PolicyBridgeError as error:
                self._repository.refuse(policy.name, number, PreconditionError(str(error)))
                await self.peers.take(self._repository.policy(policy.name))
                raise

    def _publication(self, files: VersionFiles) -> Publication:
        return Publication(self._opener, files, self._switch, self.peers, self._numbered)

    def _switch(self, policy: StoredPolicy, loaded: LoadedVersion) -> None:
        self._engine.versions.admit(loaded)
        self._repository.put(policy)
        self._repository.put_version(loaded.stored)
        self._engine.versions.unload_unused()
        if self._permission.allowed and policy.folder.parent in self._repository.writable:
            self.retention.retire_old(policy.name)
        _LOG.info("new version %s: %s", loaded.stored, loaded.probe)

    async def _new_policy(self, name: str, config: str) -> StoredPolicy:
        if not config:
            raise NotFoundError(f"no policy {name!r}; the first version of one comes with its policy.toml")
        if not self._repository.writable:
            raise PreconditionError("there is no folder for new policies; the operator names one with --repository")
        parsed = await _parsed(config, "the new policy.toml")
        return StoredPolicy(name, self._repository.writable[-1] / name, parsed, text=config)

    async def set_alias(self, name: str, alias: str, number: int) -> int | None:
        """Let ``alias`` name the version ``number``; give the version that it named before.

        Raises:
            InvalidError: the alias's name is not allowed.
            NotFoundError: there is no such policy or version.
            PreconditionError: the operator does not allow it, the version cannot be loaded, or the repository cannot
                be written.

        """
        self._permission.check([alias])
        # Load it first: a version that is broken on the disk must not take a good one's alias.
        await self._opener.version(PolicyReference(name, version=number))
        async with self._opener.changing():
            policy = self._permission.writable(name)
            stored = policy.resolve(PolicyReference(name, version=number))
            check_not_rolled_out(policy, alias)
            await self.peers.prepare(stored, published=False)
            changed = {**policy.changed, alias: number}
            try:
                await asyncio.to_thread(self._repository.write_aliases, policy.folder, changed)
            except OSError as error:
                raise _unwritable(error) from error
            self._repository.put(replace(policy, changed=changed))
            self._engine.versions.unload_unused()
            await self.peers.take(self._repository.policy(name))
            return policy.aliases.get(alias)

    async def retire(self, name: str, number: int) -> None:
        """Retire a version: no new session gets it, and its files are removed when its last session has ended.

        Raises:
            NotFoundError: there is no such policy or version.
            PreconditionError: an alias names it, or the operator does not allow it.

        """
        self._permission.check()
        async with self._opener.changing():
            policy = self._permission.writable(name)
            if number in policy.elsewhere and policy.numbers is not None:
                await self._drop(policy, policy.numbers, number)
                return
            if number not in policy.refused:
                policy.resolve(PolicyReference(name, version=number))
            names = policy.named(number)
            if names:
                raise PreconditionError(f"{name}@{number} is {', '.join(names)}; let these name another version first")
            await self.retention.retire(policy, [number])
            await self.peers.take(self._repository.policy(name))

    async def _drop(self, policy: StoredPolicy, numbers: Numbers, number: int) -> None:
        """Let replicas retire a version that this server never had."""
        epoch, _ = policy.elsewhere[number]
        dropped = {**numbers.dropped, epoch: [*numbers.dropped.get(epoch, ()), number]}
        elsewhere = {each: told for each, told in policy.elsewhere.items() if each != number}
        await self._put_numbers(replace(policy, elsewhere=elsewhere), msgspec.structs.replace(numbers, dropped=dropped))

    async def reread(self) -> None:
        """Read unreported changes of another process of this server, which was killed, from the disk."""
        async with self._opener.changing():
            for policy in self.policies():
                if policy.folder.parent not in self._repository.writable:
                    continue
                now = await asyncio.to_thread(read_policy, policy.folder)
                gone = [number for number in policy.versions if is_retired(policy.folder / str(number))]
                self._repository.put(replace(policy, changed=now.changed, rollout=now.rollout, numbers=now.numbers))
                if gone:
                    await self.retention.retire(policy, gone)
                if self._repository.policy(policy.name) != policy:
                    await self.peers.take(self._repository.policy(policy.name))

    @property
    def is_replica(self) -> bool:
        """Whether a leader takes the changes."""
        return self._permission.leader is not None

    @property
    def limits(self) -> Limits:
        """How large a version may be."""
        return self._repository.limits

    async def progress(self, name: str) -> str:
        """Return the progress of the comparison of a policy's roll-out; empty before the first one."""
        known = [self.rollouts.progress, *await self.peers.gather("progress")]
        return next((each[name] for each in known if name in each), "")

    def policies(self) -> list[StoredPolicy]:
        """Return all policies in their present state, by name."""
        return [self._repository.policy(name) for name in sorted(self._repository.policies())]

    async def describe(self, name: str) -> tuple[StoredPolicy, list[VersionDescription]]:
        """Give a policy and its versions, the newest first.

        Raises:
            NotFoundError: there is no such policy.

        """
        policy = self._repository.policy(name)
        sizes = await asyncio.to_thread(_sizes, policy)
        elsewhere: Counter[PolicyVersion] = Counter()
        for counts in await self.peers.gather("sessions"):
            elsewhere.update(counts)
        described = [
            self._describe(stored, sizes[number], elsewhere[stored.policy])
            for number, stored in policy.versions.items()
        ]
        described += [
            VersionDescription(PolicyVersion(name, number, ""), error=str(error))
            for number, error in policy.refused.items()
        ]
        return policy, sorted(described, key=lambda version: -version.policy.version)

    def _describe(self, stored: StoredVersion, size: int, elsewhere: int) -> VersionDescription:
        loaded = self._engine.versions.get(stored.policy)
        if loaded is None:
            return VersionDescription(stored.policy, size, elsewhere)
        return VersionDescription(stored.policy, size, loaded.sessions + elsewhere, loaded.signature, loaded.trouble)

    def close(self) -> None:
        """Finish the removal of retired versions."""
        self.retention.close()


async def _parsed(config: str, where: str) -> PolicyConfig:
    check_size(len(config), where)
    return await asyncio.to_thread(parse_toml, config.encode(), where, PolicyConfig)


def _next_number(policy: StoredPolicy) -> int:
    number = policy.given + 1
    # A folder may be being copied in, or a retired one being removed.
    while (policy.folder / str(number)).exists() or is_retired(policy.folder / str(number)):
        number += 1
    return number


def _skipped(numbers: Numbers, given: int, number: int, epoch: str) -> Numbers:
    """Give the numbers after the news that a replica keeps a version of this number and epoch."""
    if epoch == numbers.epoch:
        # The repository is older than its replicas, though it looks like no copy.
        return numbers.next_epoch(given, number)
    return msgspec.structs.replace(numbers, highest=max(numbers.highest, given, number))


def _kept_elsewhere(policy: StoredPolicy, number: int) -> tuple[str, str]:
    if number not in policy.elsewhere:
        raise PreconditionError(f"no replica keeps a {policy.name}@{number} that this server does not have")
    return policy.elsewhere[number]


def _staged(policy: Path, limits: Limits, config: str = "") -> Staging:
    try:
        return Staging(policy, limits, config)
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> PreconditionError:
    return PreconditionError(f"the repository cannot be written: {error}")


def _seal_with_weights(staging: Staging, base: StoredVersion, spool: Spool) -> str:
    backend = load_backend(base.config.backend)
    if not isinstance(backend, WeightsBackend):
        raise PreconditionError(f"the backend {base.config.backend!r} takes no weights alone; publish all files")
    staging.link(base.folder)
    backend.replace_weights(staging.folder, base.config, spool.read())
    spool.close()
    return staging.seal()


def _sizes(policy: StoredPolicy) -> dict[int, int]:
    return {number: folder_size(version.folder) for number, version in policy.versions.items()}
