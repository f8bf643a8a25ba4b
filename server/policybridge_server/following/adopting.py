"""Updates a server's copy of a policy to the source's state: first the files, then one step for new sessions."""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from policybridge_core.digest import digest
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_core.text import PeerText
from policybridge_serdes import PolicyReference, PolicyVersion, Signature
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.following.state import Lack, PolicyState
from policybridge_server.publishing.compatibility import check_compatible
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import LATEST, PolicyConfig, StoredPolicy, StoredVersion, version_digest
from policybridge_server.repository.aliases import write_aliases
from policybridge_server.repository.checks import check_files, check_name, is_name, is_number
from policybridge_server.repository.config import POLICY_TOML
from policybridge_server.repository.files import remove_folder, replace_file
from policybridge_server.repository.numbers import NUMBERS, TAKEN, Origin, Taken
from policybridge_server.repository.rollout import ROLLOUT
from policybridge_server.repository.staging import Staging
from policybridge_server.repository.toml import check_size, parse_toml

_LOG = logging.getLogger(__name__)

MEANWHILE: Final = PeerText("it was changed here at the same time")
"""The reason of an update that did nothing because ``still`` was false."""

Fetch = Callable[[str, int, str, Staging], None]
"""Writes the files of a version, given policy, number, digest and target folder."""


@dataclass
class _Target:
    """The new state of a policy, and the progress of its update."""

    policy: StoredPolicy
    lacks: list[Lack] = field(default_factory=list)
    loaded: list[LoadedVersion] = field(default_factory=list)

    def lack(self, number: int | None, error: Exception, *, passing: bool = False) -> None:
        self.lacks.append(Lack(PeerText(self.policy.name), number, PeerText(str(error)), passing))


class Adopter:
    """Keeps the policies in one folder equal to those of a source. For the loop thread, and for one policy at a time.

    Args:
        opener: opens the sessions that get the versions.
        publisher: the server's publisher.
        folder: the folder of the copies, which only this object changes.

    """

    def __init__(self, opener: SessionOpener, publisher: Publisher, folder: Path) -> None:
        self._opener = opener
        self._engine = opener.engine
        self._repository = opener.engine.repository
        self._publisher = publisher
        self._folder = folder.absolute()
        self._refused: dict[PolicyVersion, str] = {}

    async def adopt(self, state: PolicyState, fetch: Fetch, *, still: Callable[[], bool] = lambda: True) -> list[Lack]:
        """Apply ``state`` for new sessions; return the parts that cannot be served.

        Versions that the state does not have are retired. New sessions see one step: its versions, its aliases and its
        roll-out together. A version that cannot be fetched or loaded is left out; all other versions apply.

        Args:
            state: the state of one policy.
            fetch: writes the files of a version; called in a thread.
            still: whether nothing has changed here since the state was read; if false, do nothing.

        """
        known = self._repository.find(state.name)
        if known is not None and known.folder.parent != self._folder:
            reason = "this server has a policy of this name in a repository of its own"
            return [Lack(PeerText(state.name), None, PeerText(reason))]
        try:
            target = await asyncio.to_thread(self._prepared, state, known, fetch)
        except (PolicyBridgeError, OSError) as error:
            return [Lack(PeerText(state.name), None, PeerText(str(error)), passing=True)]
        async with self._opener.changing():
            if not still():
                return [Lack(PeerText(state.name), None, MEANWHILE, passing=True)]
            await self._switch(state, target)
        return target.lacks

    def _prepared(self, state: PolicyState, known: StoredPolicy | None, fetch: Fetch) -> _Target:
        """Bring the files of all versions to the disk; blocks."""
        _check(state)
        folder = self._folder / state.name
        where = f"the policy.toml of {state.name}"
        check_size(len(state.config), where)
        config = parse_toml(state.config.encode(), where, PolicyConfig)
        folder.mkdir(exist_ok=True)
        toml = folder / POLICY_TOML
        if not toml.is_file() or toml.read_text() != state.config:
            replace_file(toml, state.config.encode())
        before = {} if known is None or known.config != config else known.versions
        # A file may have other values, written by hand.
        aliases = {alias: number for alias, number in state.aliases.items() if is_name(alias) and alias != LATEST}
        policy = StoredPolicy(
            state.name, folder, config, aliases, rollout=state.rollout, text=state.config, numbers=state.numbers
        )
        target = _Target(policy)
        taken = TAKEN.read(folder) or Taken()
        kept = _kept(state, taken)
        versions: dict[int, StoredVersion] = {}
        for number in kept:
            identity = version_digest(taken.versions[number].files, config)
            versions[number] = StoredVersion(PolicyVersion(state.name, number, identity), folder / str(number), config)
        for number, wanted in sorted(state.versions.items()):
            stored = StoredVersion(PolicyVersion(state.name, number, wanted), folder / str(number), config)
            origin = taken.versions.get(number)
            if origin is not None and version_digest(origin.files, config) != wanted and state.numbers is not None:
                # A number stands for one version for ever: clients and ledgers name it.
                versions[number], kept[number] = _as_taken(stored, origin), origin.epoch
                target.lack(
                    number,
                    PreconditionError(
                        f"this server has another version of that number, {versions[number].policy.digest}"
                    ),
                )
                continue
            if number in before and before[number].policy == stored.policy:
                versions[number] = before[number]
                continue
            try:
                self._bring(stored, fetch)
                versions[number] = stored
            except (PolicyBridgeError, OSError) as error:
                target.lack(number, error, passing=True)
        target.policy = replace(policy, versions=versions, kept=kept)
        _remember(target.policy, taken)
        return target

    def _bring(self, stored: StoredVersion, fetch: Fetch) -> None:
        """Fetch the files of a version into its folder, unless they are there."""
        folder, wanted = stored.folder, stored.policy.digest
        if self._publisher.retention.is_retired(folder):
            raise PreconditionError("another version of this number is being removed here")
        if folder.is_dir():
            with suppress(PolicyBridgeError):
                check_files(folder, self._repository.limits)
                if version_digest(digest(folder), stored.config) == wanted:
                    return
            remove_folder(folder)
        staging = Staging(folder.parent, self._repository.limits)
        try:
            fetch(stored.policy.name, stored.policy.version, wanted, staging)
            actual = version_digest(staging.seal(), stored.config)
            if actual != wanted:
                raise PreconditionError(
                    f"the files fetched for {stored} have the digest {actual}, not {wanted}; they are not used"
                )
            staging.place(folder)
        except BaseException:
            staging.remove()
            raise

    async def _switch(self, state: PolicyState, target: _Target) -> None:
        known = self._repository.find(state.name)
        with ExitStack() as undo:
            await self._load(target, known, undo)
            target.policy = replace(target.policy, changed=_aliases(known, target.policy))
            try:
                await asyncio.to_thread(_write, target.policy, known)
            except OSError as error:
                target.lack(None, error, passing=True)
                return
            undo.pop_all()
        for loaded in target.loaded:
            self._engine.versions.admit(loaded)
        if known is None or _differ(known, target.policy):
            self._repository.put(target.policy)
        self._retire(known, state, target.policy.kept)
        self._engine.versions.unload_unused()
        await self._publisher.peers.take(self._repository.policy(state.name))

    async def _load(self, target: _Target, known: StoredPolicy | None, undo: ExitStack) -> None:
        """Load the new versions that an alias names; if one is refused, `latest` may name another."""
        current = self._current(target.policy.name)
        clients = [] if current is None else current.clients()
        while (stored := self._next(target, known)) is not None:
            is_latest = stored.policy.version == target.policy.latest
            try:
                loaded = await asyncio.to_thread(self._loaded, stored, current if is_latest else None, clients)
                await self._prepare_peers(stored, loaded)
            except PolicyBridgeError as error:
                self._refused[stored.policy] = str(error)
                self._refuse(target, stored, PreconditionError(str(error)))
            else:
                undo.callback(loaded.close)
                target.loaded.append(loaded)

    async def _prepare_peers(self, stored: StoredVersion, loaded: LoadedVersion) -> None:
        try:
            await self._publisher.peers.prepare(stored, published=True)
        except BaseException:
            loaded.close()
            raise

    def _next(self, target: _Target, known: StoredPolicy | None) -> StoredVersion | None:
        """Return a version that has to be loaded; refuse those that were refused before."""
        for stored in [each for each in target.policy.versions.values() if each.policy in self._refused]:
            self._refuse(target, stored, PreconditionError(self._refused[stored.policy]))
        for number, stored in target.policy.versions.items():
            is_new = known is None or known.versions.get(number) != stored or not known.named(number)
            if is_new and target.policy.named(number) and not self._is_loaded(target, stored):
                return stored
        return None

    def _is_loaded(self, target: _Target, stored: StoredVersion) -> bool:
        loaded = self._engine.versions.get(stored.policy)
        return loaded is not None or any(each.stored == stored for each in target.loaded)

    def _refuse(self, target: _Target, stored: StoredVersion, error: PreconditionError) -> None:
        number = stored.policy.version
        target.lack(number, error)
        versions = {each: version for each, version in target.policy.versions.items() if each != number}
        target.policy = replace(target.policy, versions=versions, refused={**target.policy.refused, number: error})
        _LOG.warning("%s is not served: %s", stored, error)

    def _loaded(
        self, stored: StoredVersion, current: LoadedVersion | None, clients: Sequence[Signature]
    ) -> LoadedVersion:
        loaded = self._engine.versions.prepare(stored, rehearse=True)
        try:
            if current is not None and current.stored.policy.version < stored.policy.version:
                check_compatible(loaded, current, clients)
        except PolicyBridgeError:
            loaded.close()
            raise
        return loaded

    def _current(self, name: str) -> LoadedVersion | None:
        with suppress(NotFoundError, PreconditionError):
            return self._engine.loaded(PolicyReference(name))
        return None

    def _retire(self, known: StoredPolicy | None, state: PolicyState, kept: Container[int]) -> None:
        if known is None:
            return
        gone = [number for number in known.versions if number not in state.versions and number not in kept]
        if gone:
            # Their sessions go on: the files are removed after the last one.
            self._publisher.retention.retire(known, gone)


def _kept(state: PolicyState, taken: Taken) -> dict[int, str]:
    """Give the versions, with their epochs, that the leader does not have and never had: nobody has retired them."""
    if state.numbers is None:
        return {}
    numbers = state.numbers
    found = {number: origin.epoch for number, origin in taken.versions.items() if number not in state.versions}
    return {number: epoch for number, epoch in found.items() if not numbers.had(number, epoch)}


def _as_taken(stored: StoredVersion, origin: Origin) -> StoredVersion:
    identity = version_digest(origin.files, stored.config)
    return replace(stored, policy=replace(stored.policy, digest=identity))


def _remember(policy: StoredPolicy, taken: Taken) -> None:
    """Write which versions were taken, with the digests of their files and the epochs of their numbers."""
    if policy.numbers is None:
        return
    versions = {
        number: taken.versions[number]
        if number in policy.kept or _is_same(taken.versions.get(number), version)
        else Origin(policy.numbers.epoch_of(number), digest(version.folder))
        for number, version in policy.versions.items()
    }
    now = Taken(versions, tuple(sorted(policy.kept)))
    if now != taken:
        TAKEN.write(policy.folder, now)
        NUMBERS.write(policy.folder, policy.numbers)


def _is_same(origin: Origin | None, version: StoredVersion) -> bool:
    return origin is not None and version_digest(origin.files, version.config) == version.policy.digest


def _check(state: PolicyState) -> None:
    """Check values that become names or contents of files, because the source may be wrong."""
    check_name(state.name)
    for number in state.versions:
        if not is_number(str(number)):
            raise InvalidError(f"{number} is no number of a version")


def _aliases(known: StoredPolicy | None, policy: StoredPolicy) -> dict[str, int]:
    """Return the aliases; an alias of a missing version keeps its old version, if it can."""
    before = {} if known is None else known.changed
    wanted = {name: [number, before.get(name)] for name, number in policy.changed.items()}
    aliases = {
        name: [each for each in numbers if each is not None and each in policy.versions]
        for name, numbers in wanted.items()
    }
    return {name: numbers[0] for name, numbers in aliases.items() if numbers}


def _differ(known: StoredPolicy, now: StoredPolicy) -> bool:
    # Two errors with the same text are not equal.
    same = (known.config, known.changed, known.versions, known.rollout, known.kept, known.numbers) == (
        now.config,
        now.changed,
        now.versions,
        now.rollout,
        now.kept,
        now.numbers,
    )
    return not same or known.refused.keys() != now.refused.keys()


def _write(policy: StoredPolicy, known: StoredPolicy | None) -> None:
    if known is None or dict(known.changed) != dict(policy.changed):
        write_aliases(policy.folder, policy.changed)
    if policy.rollout is not None and (known is None or known.rollout != policy.rollout):
        ROLLOUT.write(policy.folder, policy.rollout)
