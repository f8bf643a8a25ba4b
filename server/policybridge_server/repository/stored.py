"""Policies and versions as values. A change makes a new value, so that no reader sees half of a change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.repository.config import PolicyConfig

LATEST: Final = "latest"


@dataclass(frozen=True)
class StoredVersion:
    """One version of a policy: its identity, its folder, and how it is loaded."""

    policy: PolicyVersion
    folder: Path
    config: PolicyConfig

    def __str__(self) -> str:
        return f"{self.policy.name}@{self.policy.version}"


@dataclass(frozen=True)
class StoredPolicy:
    """One policy.

    Attributes:
        name: also that of its folder.
        folder: holds ``policy.toml`` and the versions.
        config: its ``policy.toml``, or the error for which that cannot be used.
        changed: the aliases of ``aliases.toml``, which override those of ``policy.toml``.
        versions: number → version that is served.
        refused: number → error of a version that is not served.

    """

    name: str
    folder: Path
    config: PolicyConfig | PreconditionError
    changed: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[int, StoredVersion] = field(default_factory=dict)
    refused: Mapping[int, PreconditionError] = field(default_factory=dict)

    @property
    def usable(self) -> PolicyConfig:
        """Its config.

        Raises:
            PreconditionError: its ``policy.toml`` cannot be used.

        """
        if isinstance(self.config, PreconditionError):
            raise self.config
        return self.config

    @property
    def aliases(self) -> dict[str, int]:
        """The aliases, without ``latest``."""
        initial = {} if isinstance(self.config, PreconditionError) else self.config.aliases
        return {name: number for name, number in {**initial, **self.changed}.items() if name != LATEST}

    @property
    def latest(self) -> int | None:
        """The highest number; ``None`` without a version."""
        return max(self.versions, default=None)

    def named(self, number: int) -> list[str]:
        """Give the aliases that name ``number``, with ``latest``."""
        latest = [LATEST] if number == self.latest else []
        return latest + [alias for alias, named in self.aliases.items() if named == number]

    def resolve(self, reference: PolicyReference) -> StoredVersion:
        """Find the version that ``reference`` means now.

        Raises:
            NotFoundError: no such version or alias; the message lists what there is.
            PreconditionError: the ``policy.toml`` cannot be used, or the version is refused.

        """
        number = self._number(reference)
        if number in self.versions:
            return self.versions[number]
        if number in self.refused:
            raise PreconditionError(str(self.refused[number]))
        raise NotFoundError(f"no version {number} of policy {self.name!r}; there are {listed(self.versions)}")

    def _number(self, reference: PolicyReference) -> int:
        if isinstance(self.config, PreconditionError):
            raise self.config
        if reference.version is not None:
            return reference.version
        alias, aliases = reference.alias or LATEST, self.aliases
        if alias in aliases:
            return aliases[alias]
        if alias != LATEST:
            known = listed([LATEST, *aliases])
            raise NotFoundError(f"policy {self.name!r} has no alias {alias!r}; there are {known}")
        number = self.latest or max(self.refused, default=None)
        if number is None:
            raise NotFoundError(f"policy {self.name!r} has no version yet")
        return number


def listed(names: object) -> str:
    """Give ``names`` in their order, for an error message."""
    return ", ".join(str(name) for name in sorted(names)) or "none"  # type: ignore[call-overload]
