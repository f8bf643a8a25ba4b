"""The publisher: new versions under running compilers, and what their names mean.

Whatever takes time is done off the loop thread, one version at a time; the switch itself is one step on it, so that
every session gets the old version or the new one.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.backends.contract import ModelSignature
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.publishing.publication import (
    Draft,
    Making,
    Predecessor,
    next_version,
    seal_as,
    seal_with_weights,
)
from policybridge_server.publishing.retention import Retention
from policybridge_server.repository import Limits, StoredPolicy, StoredVersion
from policybridge_server.repository.aliases import write_aliases
from policybridge_server.repository.checks import check_alias, check_name
from policybridge_server.repository.config import parse_config
from policybridge_server.repository.files import folder_size
from policybridge_server.repository.staging import Staging

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """What there is to say of one version; ``signature`` where it is loaded, ``error`` where it is not served."""

    policy: PolicyVersion
    bytes: int = 0
    sessions: int = 0
    signature: ModelSignature | None = None
    error: str = ""


class Publisher:
    """Changes the repository of a running server. For the loop thread.

    Args:
        opener: of the engine whose sessions get the versions.
        allowed: whether the operator lets clients publish.
        keep: how many versions of a policy stay, beside those that an alias names.

    """

    def __init__(self, opener: SessionOpener, *, allowed: bool, keep: int) -> None:
        self._opener = opener
        self._engine = opener.engine
        self._repository = opener.engine.repository
        self._allowed = allowed
        self._retention = Retention(self._repository, self._engine.versions, keep)

    def draft(self, name: str, config: str = "") -> Draft:
        """Begin a version of the policy ``name``; ``config`` is the text of a new policy's ``policy.toml``.

        Raises:
            PreconditionError: the operator does not allow it; the config cannot be used, or there is another one.
            InvalidError: ``name`` is no name of a policy.
            NotFoundError: there is no such policy, and no config to make it.

        """
        self._check_allowed()
        check_name(name)
        limits = self._repository.limits
        if name not in self._repository.policies():
            policy = self._new_policy(name, config)
            return Draft(policy, True, Staging(policy.folder.parent, limits, config))
        policy = self._writable(name)
        if config and parse_config(config.encode(), "the config") != policy.usable:
            raise PreconditionError(f"policy {name!r} has another policy.toml, which all its versions share")
        return Draft(policy, False, Staging(policy.folder, limits))

    def _new_policy(self, name: str, config: str) -> StoredPolicy:
        if not config:
            raise NotFoundError(f"no policy {name!r}; the first version of one comes with its policy.toml")
        if not self._repository.writable:
            raise PreconditionError("there is no folder for new policies; the operator names one with --repository")
        return StoredPolicy(
            name, self._repository.writable[-1] / name, parse_config(config.encode(), "the new policy.toml")
        )

    def _check_allowed(self) -> None:
        self._opener.check_open()
        if not self._allowed:
            raise PreconditionError("this server takes no changes; its operator allows them with --allow-publish")

    def _writable(self, name: str) -> StoredPolicy:
        policy = self._repository.policy(name)
        if policy.folder.parent not in self._repository.writable:
            raise PreconditionError(f"policy {name!r} is a part of the package; publish under another name")
        return policy

    async def publish(self, draft: Draft, digest: str, aliases: Sequence[str]) -> PolicyVersion:
        """Let new sessions get what was drafted, once it has been checked, loaded and warmed up.

        Raises:
            InvalidError: its digest is not ``digest``, or an alias has an impossible name.
            PreconditionError: it cannot be loaded, or does not take what its predecessor took.

        """
        _check_aliases(aliases)
        async with self._opener.loading:
            now = draft.policy
            if now.name in self._repository.policies():
                now = self._repository.policy(now.name)
                if draft.is_new:
                    raise PreconditionError(f"policy {now.name!r} was made meanwhile; publish again, without config")
            return await self._make(next_version(draft, now, aliases, lambda: seal_as(draft.staging, digest)))

    async def publish_weights(self, base: PolicyReference, weights: bytes, aliases: Sequence[str]) -> PolicyVersion:
        """Make a version of ``base`` with other ``weights``: tensors by name in safetensors.

        Raises:
            NotFoundError: there is no such base.
            InvalidError: ``weights`` are none.
            PreconditionError: the backend cannot do it, or the tensors are not those of the base.

        """
        _check_aliases(aliases)
        async with self._opener.loading:
            draft = self.draft(base.name)
            try:
                stored, known = self._repository.resolve(base), self._engine.loaded(base)
                making = next_version(
                    draft, draft.policy, aliases, lambda: seal_with_weights(draft.staging, stored, weights)
                )
                return await self._make(replace(making, proven=known.probe if known else None))
            finally:
                draft.staging.remove()

    async def _make(self, making: Making) -> PolicyVersion:
        old = await self.current(making.policy.name)
        if old is not None:
            making = replace(making, old=Predecessor(old, old.clients()))
        loaded = await asyncio.to_thread(making.run, self._engine.versions)
        self.switch(making.policy, loaded)
        return loaded.stored.policy

    async def current(self, name: str) -> LoadedVersion | None:
        """Give the version that new sessions get now, loaded; ``None`` where there is none that can be served."""
        reference = PolicyReference(name)
        with suppress(NotFoundError, PreconditionError):
            return self._engine.loaded(reference) or await asyncio.to_thread(self._engine.load, reference)
        return None

    def switch(self, policy: StoredPolicy, loaded: LoadedVersion) -> None:
        """Let new sessions get ``loaded``, a version of ``policy`` in its place."""
        self._engine.versions.admit(loaded)
        self._repository.put(policy)
        self._repository.put_version(loaded.stored)
        self._engine.versions.sweep()
        if self._allowed and policy.folder.parent in self._repository.writable:
            self._retention.retire_old(policy.name)
        _LOG.info("new version %s: %s", loaded.stored, loaded.probe)

    async def set_alias(self, name: str, alias: str, number: int) -> int | None:
        """Let ``alias`` name the version ``number``; give the one that it named before.

        Raises:
            InvalidError: an impossible name.
            NotFoundError: there is no such policy or version.
            PreconditionError: the operator does not allow it, or the version cannot be loaded.

        """
        self._check_allowed()
        check_alias(alias)
        # Loaded before it is named: a version that is broken on the disk must not take a good one's name.
        await self._opener.version(PolicyReference(name, version=number))
        async with self._opener.loading:
            policy = self._writable(name)
            policy.resolve(PolicyReference(name, version=number))
            changed = {**policy.changed, alias: number}
            await asyncio.to_thread(write_aliases, policy.folder, changed)
            self._repository.put(replace(policy, changed=changed))
            self._engine.versions.sweep()
            return policy.aliases.get(alias)

    async def retire(self, name: str, number: int) -> None:
        """Let a version go: no new session gets it, and its files go when its last session has ended.

        Raises:
            NotFoundError: there is no such policy or version.
            PreconditionError: an alias names it, or the operator does not allow it.

        """
        self._check_allowed()
        async with self._opener.loading:
            policy = self._writable(name)
            if number not in policy.refused:
                policy.resolve(PolicyReference(name, version=number))
            names = policy.named(number)
            if names:
                raise PreconditionError(f"{name}@{number} is {', '.join(names)}; let these name another version first")
            await self._retention.retire(policy, [number])

    @property
    def limits(self) -> Limits:
        """How large a version may be."""
        return self._repository.limits

    def is_leaving(self, folder: Path) -> bool:
        """Whether the version in this folder is retired and not gone yet."""
        return self._retention.is_leaving(folder)

    def policies(self) -> list[StoredPolicy]:
        """Give all policies as they are now, in the order of their names."""
        return [self._repository.policy(name) for name in sorted(self._repository.policies())]

    async def show(self, name: str) -> tuple[StoredPolicy, list[Shown]]:
        """Describe a policy and its versions, the newest first.

        Raises:
            NotFoundError: there is no such policy.

        """
        policy = self._repository.policy(name)
        sizes = await asyncio.to_thread(_sizes, policy)
        shown = [self._shown(stored, sizes[number]) for number, stored in policy.versions.items()]
        shown += [Shown(PolicyVersion(name, number, ""), error=str(error)) for number, error in policy.refused.items()]
        return policy, sorted(shown, key=lambda each: -each.policy.version)

    def _shown(self, stored: StoredVersion, size: int) -> Shown:
        loaded = self._engine.versions.get(stored.policy)
        if loaded is None:
            return Shown(stored.policy, size)
        return Shown(stored.policy, size, loaded.sessions, loaded.signature)

    def close(self) -> None:
        """Finish what is under way on the disk."""
        self._retention.close()


def _sizes(policy: StoredPolicy) -> dict[int, int]:
    return {number: folder_size(version.folder) for number, version in policy.versions.items()}


def _check_aliases(aliases: Sequence[str]) -> None:
    for alias in aliases:
        check_alias(alias)
