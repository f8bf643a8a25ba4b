"""The repository: the policies of some folders, in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_core.session import check_length
from policybridge_core.text import meant
from policybridge_serdes import PolicyReference
from policybridge_server.repository.aliases import aliases_toml, write_aliases
from policybridge_server.repository.checks import Limits
from policybridge_server.repository.reading import (
    policy_folders,
    read_policy,
    read_version,
    version_folders,
    warn_of_misplaced,
)
from policybridge_server.repository.remote import ALIASES, RemoteRepository
from policybridge_server.repository.rollout import ROLLOUT, Rollout
from policybridge_server.repository.stored import StoredPolicy, StoredVersion, listed

BUNDLED: Final = Path(__file__).parents[1] / "bundled"
"""The policies of the package itself, which are not changed."""


def is_bundled(folder: Path) -> bool:
    """Whether ``folder`` is bundled in the package, whose code is as trusted as the server's own."""
    return folder.resolve().is_relative_to(BUNDLED.resolve())


def writable(folders: Iterable[Path]) -> list[Path]:
    """Return the folders of ``folders`` that may be changed."""
    return [folder for folder in folders if folder.resolve() != BUNDLED.resolve()]


class Repository:
    """Finds policies and versions by name. The folders are read once; later changes are made by these methods.

    Args:
        folders: each with a folder per policy.
        limits: the limits of a version.
        policies: the folders' policies, if another process has read them; ``None``: read them.
        origins: the origins of folders that are copies of a writable address; changes are made there first.

    Attributes:
        revision: grows with each change.

    Raises:
        NotFoundError: one of ``folders`` does not exist.
        PreconditionError: two folders have a policy of the same name.

    """

    def __init__(
        self,
        folders: Sequence[Path],
        limits: Limits | None = None,
        policies: Sequence[StoredPolicy] | None = None,
        origins: Mapping[Path, RemoteRepository] | None = None,
    ) -> None:
        self._origins = {folder.absolute(): origin for folder, origin in (origins or {}).items()}
        # Absolute: the code of a policy, or of a package, may change the process's folder.
        self.folders = tuple(folder.absolute() for folder in folders)
        self.limits = limits or Limits()
        self._policies: dict[str, StoredPolicy] = {}
        self._revisions: dict[str, int] = {}
        self._told: list[Callable[[], None]] = []
        self.revision = 0
        for known in policies or ():
            self.put(known)
        for given, folder in zip(folders, self.folders, strict=True):
            if not folder.is_dir():
                raise NotFoundError(f"the repository {given} is not a folder")
            if policies is None:
                warn_of_misplaced(folder)
                for policy in policy_folders(folder):
                    self._add(policy)

    def _add(self, folder: Path) -> None:
        if folder.name in self._policies:
            raise PreconditionError(f"two repositories hold a policy {folder.name!r}; the second is {folder}")
        self.put(read_policy(folder))
        for version in () if isinstance(self._policies[folder.name].config, Exception) else version_folders(folder):
            try:
                self.put_version(read_version(version, self._policies[folder.name].usable, self.limits))
            except PreconditionError as error:
                self.refuse(folder.name, int(version.name), error)

    def policies(self) -> list[str]:
        """Name all policies, those with a broken ``policy.toml`` too."""
        return list(self._policies)

    def find(self, name: str) -> StoredPolicy | None:
        """Return the present state of the policy ``name``, or ``None``."""
        return self._policies.get(name)

    def policy(self, name: str) -> StoredPolicy:
        """Return the present state of the policy ``name``.

        Raises:
            NotFoundError: there is no such policy; the message lists all policies.

        """
        policy = self._policies.get(name)
        if policy is None:
            check_length(name, "the name of a policy")
            raise NotFoundError(f"no policy {name!r}; {meant(name, self._policies)}there are {listed(self._policies)}")
        return policy

    @property
    def writable(self) -> list[Path]:
        """The folders that policies may be published into; new ones go into the last."""
        return writable(self.folders)

    def resolve(self, reference: PolicyReference) -> StoredVersion:
        """Find the version that ``reference`` means now.

        Raises:
            NotFoundError: no such policy, version or alias; the message lists the existing ones.
            PreconditionError: its ``policy.toml`` cannot be used, or the version is refused.

        """
        return self.policy(reference.name).resolve(reference)

    def chosen(self, reference: PolicyReference, file: str) -> PolicyReference:
        """Return the version for a session that compiles ``file``; see `StoredPolicy.chosen`."""
        policy = self._policies.get(reference.name)
        return reference if policy is None else policy.chosen(reference, file)

    def is_named(self, version: StoredVersion) -> bool:
        """Whether an alias names this version, ``latest`` among them."""
        policy = self._policies.get(version.policy.name)
        return policy is not None and bool(policy.named(version.policy.version))

    def put(self, policy: StoredPolicy) -> None:
        """Add the policy, or replace it."""
        self._policies[policy.name] = policy
        self.revision += 1
        self._revisions[policy.name] = self.revision
        for tell in self._told:
            tell()

    def origin(self, policy: Path) -> RemoteRepository | None:
        """Return the origin of a policy's folder; ``None`` if it is not a copy."""
        return self._origins.get(policy.parent)

    def write_aliases(self, policy: Path, aliases: Mapping[str, int]) -> None:
        """Write the aliases of the policy in this folder, durably; they are not served yet. Blocks.

        Raises:
            UnavailableError: the folder is a copy, and its origin cannot be written.

        """
        origin = self.origin(policy)
        if origin is not None:
            origin.write(policy.name, ALIASES, aliases_toml(aliases))
        write_aliases(policy, aliases)

    def write_rollout(self, policy: Path, rollout: Rollout) -> None:
        """Write the roll-out of the policy in this folder; see `write_aliases`."""
        origin = self.origin(policy)
        if origin is not None:
            origin.write(policy.name, ROLLOUT.name, ROLLOUT.encode(rollout))
        ROLLOUT.write(policy, rollout)

    def changed_since(self, revision: int) -> list[StoredPolicy]:
        """Give the policies that have changed after this revision."""
        return [self._policies[name] for name, changed in self._revisions.items() if changed > revision]

    def on_change(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after each change, until the returned function is called."""
        self._told.append(tell)
        return lambda: self._told.remove(tell)

    def put_version(self, version: StoredVersion) -> None:
        """Add a version; it is no longer refused, if it was."""
        policy = self._without(version.policy.name, [version.policy.version])
        self.put(replace(policy, versions={**policy.versions, version.policy.version: version}))

    def refuse(self, name: str, number: int, error: PreconditionError) -> None:
        """Serve this version no longer; a client that asks for it gets ``error``."""
        policy = self._without(name, [number])
        self.put(replace(policy, refused={**policy.refused, number: error}))

    def forget(self, name: str, numbers: Sequence[int]) -> None:
        """Serve these versions no longer."""
        self.put(self._without(name, numbers))

    def _without(self, name: str, numbers: Sequence[int]) -> StoredPolicy:
        policy = self.policy(name)
        versions = {number: version for number, version in policy.versions.items() if number not in numbers}
        refused = {number: error for number, error in policy.refused.items() if number not in numbers}
        return replace(policy, versions=versions, refused=refused)
