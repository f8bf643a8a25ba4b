"""Policies and versions as values. A change makes a new value, so that no reader sees half of a change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, OutOfScopeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.numbers import Numbers
from policybridge_server.repository.rollout import LATEST, Rollout

_DIGEST: Final = "sha256:"
_SHORTEST: Final = len(_DIGEST) + 12
"""The least characters of a digest that a client must give, as ``policybridge policies show`` prints."""

_SHOWN: Final = 100
"""Characters of a client's label that an error shows."""


@dataclass(frozen=True)
class StoredVersion:
    """One version of a policy: its identity, its folder, and how it is loaded."""

    policy: PolicyVersion
    folder: Path
    config: PolicyConfig

    def __str__(self) -> str:
        return f"{self.policy.name}@{self.policy.version}"

    @property
    def by_kind(self) -> Mapping[str, "StoredVersion"]:
        """The version with the config of each of its models; see `PolicyConfig.by_kind`."""
        return {kind: replace(self, config=config) for kind, config in self.config.by_kind.items()}

    def check_scope(self, labels: Mapping[str, str]) -> None:
        """Check that the policy is for a compilation with these labels. A label that is absent is in every scope.

        Raises:
            OutOfScopeError: it is not.

        """
        fault = _fault(self.config.scope, labels)
        if fault:
            raise OutOfScopeError(f"{self} is for {fault} ([scope] in policy.toml)")

    def outside(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Give the kinds of decisions that are not for a compilation with these labels, which `check_scope` has passed.

        Returns:
            The kind → why, for people.

        Raises:
            OutOfScopeError: no kind is left.

        """
        faults = {kind: _fault(own.scope, labels) for kind, own in self.config.kinds.items()}
        outside = {
            kind: f"{self} decides {kind} for {fault} ([kinds.{kind}.scope] in policy.toml)"
            for kind, fault in faults.items()
            if fault
        }
        if outside and len(outside) == len(faults):
            raise OutOfScopeError("; ".join(outside.values()))
        return outside


@dataclass(frozen=True)
class StoredPolicy:
    """One policy.

    Attributes:
        name: the policy's name, and that of its folder.
        folder: the folder of ``policy.toml`` and the versions.
        config: its ``policy.toml``, or the error in it.
        changed: the aliases of ``aliases.toml``, which override those of ``policy.toml``.
        versions: number → served version.
        refused: number → error of a refused version.
        rollout: the running roll-out, or else the last one; ``None``: there never was one.
        text: the text of its ``policy.toml``; empty without one.
        numbers: the numbers it has used; ``None``: no server that may publish has served it.
        kept: at a replica: number → epoch of versions that its leader never had; no alias names them.
        elsewhere: at a leader: number → epoch and digest of versions that replicas keep.

    """

    name: str
    folder: Path
    config: PolicyConfig | PreconditionError
    changed: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[int, StoredVersion] = field(default_factory=dict)
    refused: Mapping[int, PreconditionError] = field(default_factory=dict)
    rollout: Rollout | None = None
    text: str = ""
    numbers: Numbers | None = None
    kept: Mapping[int, str] = field(default_factory=dict)
    elsewhere: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def usable(self) -> PolicyConfig:
        """Its config.

        Raises:
            PreconditionError: its ``policy.toml`` cannot be used.

        """
        if isinstance(self.config, PreconditionError):
            raise self.config
        return self.config

    @cached_property
    def aliases(self) -> Mapping[str, int]:
        """The aliases, without ``latest``."""
        initial = {} if isinstance(self.config, PreconditionError) else self.config.aliases
        return {name: number for name, number in {**initial, **self.changed}.items() if name != LATEST}

    @cached_property
    def highest(self) -> int | None:
        """The highest number; ``None`` without a version."""
        return max((number for number in self.versions if number not in self.kept), default=None)

    @property
    def given(self) -> int:
        """The highest number that was ever given to a version."""
        return max([0 if self.numbers is None else self.numbers.highest, 0, *self.versions, *self.refused])

    @cached_property
    def latest(self) -> int | None:
        """What ``latest`` names: the highest number that no roll-out holds back; ``None`` if there is none."""
        return max((number for number in self.versions if not self.holds_back(number)), default=None)

    def holds_back(self, number: int) -> bool:
        """Whether ``latest`` does not name this version, because it is rolled out, or was withdrawn or rolled back."""
        return number in self.kept or (self.rollout is not None and self.rollout.holds_back(number))

    @cached_property
    def shared_out(self) -> Rollout | None:
        """The roll-out that shares out new sessions now.

        There is none when a newer version has become ``latest``, or the version is not served.
        """
        rollout = self.rollout
        if rollout is None or not rollout.running or rollout.version not in self.versions:
            return None
        overtaken = rollout.alias == LATEST and rollout.version != self.highest
        return None if overtaken else rollout

    def chosen(self, reference: PolicyReference, file: str) -> PolicyReference:
        """Return the reference for a session that compiles ``file``: if a roll-out takes it, the version itself."""
        rollout = self.shared_out
        if rollout is None or reference.version is not None or (reference.alias or LATEST) != rollout.alias:
            return reference
        return PolicyReference(self.name, rollout.version) if rollout.takes(self.name, file) else reference

    def named(self, number: int) -> list[str]:
        """Give the aliases that name ``number``, with ``latest``, also for a share of the sessions."""
        names = [LATEST] if number == self.latest else []
        names += [alias for alias, named in self.aliases.items() if named == number]
        rollout = self.shared_out
        if rollout is not None and rollout.version == number:
            names.append(f"{rollout.alias} for {rollout.share:.3g} of the sessions")
        return names

    def resolve(self, reference: PolicyReference) -> StoredVersion:
        """Find the version that ``reference`` means now.

        Raises:
            NotFoundError: no such version or alias; the message lists the existing ones.
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
        if alias.startswith(_DIGEST):
            return self._digested(alias)
        if alias in aliases:
            return aliases[alias]
        if alias != LATEST:
            known = listed([LATEST, *aliases])
            raise NotFoundError(f"policy {self.name!r} has no alias {alias!r}; there are {known}")
        number = self.latest or max(self.refused, default=None)
        if number is not None:
            return number
        if self.versions:
            raise PreconditionError(
                f"policy {self.name!r} has no `latest`: {listed(self.versions)} were withdrawn or rolled back"
            )
        raise NotFoundError(
            f"policy {self.name!r} has no version yet; the folder of a version is named by a number: {self.name}/1"
        )

    def _digested(self, digest: str) -> int:
        numbers = [number for number, version in self.versions.items() if version.policy.digest.startswith(digest)]
        digests = {number: version.policy.digest for number, version in self.versions.items()}
        if len(digest) < _SHORTEST or len({digests[number] for number in numbers}) != 1:
            has = ", ".join(f"{number} is {digests[number]}" for number in sorted(digests))
            raise NotFoundError(
                f"no one version of policy {self.name!r} has the digest {digest}; {has or 'it has none'}"
            )
        return max(numbers)


def _fault(scope: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> str:
    """Give the first label that is outside of the scope, with the values that it may have; empty: there is none."""
    for label, values in scope.items():
        if label in labels and labels[label] not in values:
            return f"{label} {' or '.join(values)}, and the compilation has {labels[label][:_SHOWN]!a}"
    return ""


def listed(names: object) -> str:
    """Give ``names`` in their order, for an error message."""
    return ", ".join(str(name) for name in sorted(names)) or "none"  # type: ignore[call-overload]
