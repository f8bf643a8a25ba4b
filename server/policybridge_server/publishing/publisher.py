"""The publisher: publishes and retires versions, sets aliases, and describes the repository.

Slow work is done in a thread, for one version at a time. The switch of new sessions is one step on the loop
thread, so that every session gets either the old version or the new one.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from policybridge_core.errors import NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.backends.contract import WeightsBackend, load_backend
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.publishing.descriptions import VersionDescription, describe
from policybridge_server.publishing.numbering import Numbering, kept_elsewhere, next_number
from policybridge_server.publishing.peers import Alone, Peers
from policybridge_server.publishing.permission import Permission
from policybridge_server.publishing.publication import NewVersion, Publication, VersionFiles
from policybridge_server.publishing.retention import Retention
from policybridge_server.publishing.rollouts import Rollouts, check_not_rolled_out
from policybridge_server.publishing.spool import Spool
from policybridge_server.repository import Limits, StoredPolicy, StoredVersion
from policybridge_server.repository.checks import check_name
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.reading import read_policy
from policybridge_server.repository.retired import is_retired
from policybridge_server.repository.staging import FolderInPlace, Staging
from policybridge_server.repository.toml import check_size, parse_toml

_LOG = logging.getLogger(__name__)


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
        numbering: keeps the numbers of versions.

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
        self.numbering = Numbering(opener, self._permission, self.peers)

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
            number = next_number(policy) if adopted is None else adopted
            identity = None if adopted is None else kept_elsewhere(policy, adopted)
            new = NewVersion(policy, number, partial(staging.seal, digest), aliases, identity=identity)
            return await publication.publish(new)

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
            seal = partial(_seal_with_weights, staging, stored, spool)
            probed = loaded.probes if loaded else ()
            return await publication.publish(NewVersion(policy, next_number(policy), seal, aliases, probed))

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
                await publication.publish(NewVersion(policy, number, files.seal))
            except PolicyBridgeError as error:
                self._repository.refuse(policy.name, number, PreconditionError(str(error)))
                await self.peers.take(self._repository.policy(policy.name))
                raise

    def _publication(self, files: VersionFiles) -> Publication:
        return Publication(self._opener, files, self._switch, self.peers, self.numbering.numbered)

    def _switch(self, policy: StoredPolicy, loaded: LoadedVersion) -> None:
        self._engine.versions.admit(loaded)
        self._repository.put(policy)
        self._repository.put_version(loaded.stored)
        self._engine.versions.unload_unused()
        if self._permission.allowed and policy.folder.parent in self._repository.writable:
            self.retention.retire_old(policy.name)
        _LOG.info("new version %s: %s", loaded.stored, loaded.probes)

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
                await self.numbering.drop(policy, policy.numbers, number)
                return
            if number not in policy.refused:
                policy.resolve(PolicyReference(name, version=number))
            names = policy.named(number)
            if names:
                raise PreconditionError(f"{name}@{number} is {', '.join(names)}; let these name another version first")
            await self.retention.retire(policy, [number])
            await self.peers.take(self._repository.policy(name))

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
        return policy, await describe(policy, self._engine.versions, self.peers)

    def close(self) -> None:
        """Finish the removal of retired versions."""
        self.retention.close()


async def _parsed(config: str, where: str) -> PolicyConfig:
    check_size(len(config), where)
    return await asyncio.to_thread(parse_toml, config.encode(), where, PolicyConfig)


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
    if base.config.kinds:
        raise PreconditionError(
            f"{base} has a model for each kind of decision, whose weights differ; publish all files"
        )
    staging.link(base.folder)
    backend.replace_weights(staging.folder, base.config, spool.read())
    spool.close()
    return staging.seal()
