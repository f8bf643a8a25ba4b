"""The whole state of a policy for new sessions, from a leader or a remote repository."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1 import repository_service_pb2
from policybridge_core.errors import InvalidError
from policybridge_core.text import PeerText
from policybridge_serdes.messages import version_to_pb
from policybridge_server.repository import PolicyConfig, StoredPolicy
from policybridge_server.repository.numbers import Numbers
from policybridge_server.repository.rollout import Rollout

MOST_LACKS: Final = 100
"""Entries that a replica tells, and a leader keeps of it."""


@dataclass(frozen=True)
class PolicyState:
    """One policy.

    Attributes:
        name: the policy's name.
        config: the text of its ``policy.toml``.
        aliases: aliases set while a server ran.
        rollout: the running roll-out, or else the last one.
        versions: number → digest of the version.
        numbers: those that were given; ``None``: the source does not say, and a version that it lacks is retired.

    """

    name: str
    config: str
    aliases: Mapping[str, int] = field(default_factory=dict)
    rollout: Rollout | None = None
    versions: Mapping[int, str] = field(default_factory=dict)
    numbers: Numbers | None = None


@dataclass(frozen=True)
class Lack:
    """A version or policy that a replica does not serve.

    Attributes:
        policy: the policy's name.
        version: the version's number; ``None``: the whole policy.
        reason: text for people.
        passing: whether the next try may succeed without any other change.

    """

    policy: PeerText
    version: int | None
    reason: PeerText
    passing: bool = False

    def __str__(self) -> str:
        return f"{self.policy}@{self.version}: {self.reason}" if self.version else f"{self.policy}: {self.reason}"


def state_of(policy: StoredPolicy) -> PolicyState:
    """Give the state of a policy that this server can use."""
    versions = {number: version.policy.digest for number, version in policy.versions.items()}
    text = policy.text or _guessed(policy.usable)
    return PolicyState(policy.name, text, dict(policy.changed), policy.rollout, versions)


def _guessed(config: PolicyConfig) -> str:
    """Write the ``policy.toml`` of a policy without one; a config that was guessed has no other keys."""
    lines = [f"backend = {json.dumps(config.backend)}", "[settings]"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in config.settings.items()), ""])


def state_to_pb(policy: StoredPolicy) -> pb.PolicyState:
    """Convert the state of a policy."""
    state = state_of(policy)
    rollout = None if state.rollout is None else _rollout_to_pb(state.rollout)
    versions = [version_to_pb(version.policy) for version in policy.versions.values()]
    return pb.PolicyState(
        policy=state.name,
        config=state.config,
        aliases=state.aliases,
        versions=versions,
        rollout=rollout,
        numbers=_numbers_to_pb(policy),
    )


def state_from_pb(message: pb.PolicyState) -> PolicyState:
    """Convert the state of a policy.

    Raises:
        InvalidError: its roll-out is malformed.

    """
    rollout = _rollout_from_pb(message.rollout) if message.HasField("rollout") else None
    versions = {version.version: version.digest for version in message.versions}
    numbers = _numbers_from_pb(message.numbers) if message.HasField("numbers") else None
    return PolicyState(message.policy, message.config, dict(message.aliases), rollout, versions, numbers)


def _numbers_to_pb(policy: StoredPolicy) -> pb.Numbers | None:
    numbers = policy.numbers
    if numbers is None:
        return None
    dropped = [pb.Epoch(epoch=epoch, number=each) for epoch, given in numbers.dropped.items() for each in given]
    earlier = [pb.Epoch(epoch=epoch, number=last) for epoch, last in numbers.earlier.items()]
    return pb.Numbers(epoch=numbers.epoch, highest=policy.given, earlier=earlier, dropped=dropped)


def _numbers_from_pb(message: pb.Numbers) -> Numbers:
    dropped: dict[str, list[int]] = {}
    for each in message.dropped:
        dropped.setdefault(each.epoch, []).append(each.number)
    earlier = {each.epoch: each.number for each in message.earlier}
    return Numbers(message.epoch, message.highest, earlier, dropped)


def lack_to_pb(lack: Lack) -> pb.Lack:
    """Convert a missing version."""
    return pb.Lack(policy=lack.policy, version=lack.version or 0, reason=lack.reason)


def lack_from_pb(message: pb.Lack) -> Lack:
    """Convert the message of a missing version."""
    return Lack(PeerText(message.policy), message.version or None, PeerText(message.reason))


def _rollout_to_pb(rollout: Rollout) -> repository_service_pb2.Rollout:
    fields = {name: value for name, value in msgspec.structs.asdict(rollout).items() if name != "looks"}
    return repository_service_pb2.Rollout(**fields)


def _rollout_from_pb(message: repository_service_pb2.Rollout) -> Rollout:
    # Only a leader compares, so that a replica need not know how often it did.
    fields: dict[str, Any] = {
        name: getattr(message, name)
        for name in ("version", "base", "alias", "share", "files", "state", "reason", "begun")
    }
    fields |= {name: list(getattr(message, name)) for name in ("promote_if", "withdraw_if", "withdrawn")}
    try:
        return msgspec.convert({**fields, "ended": message.ended if message.HasField("ended") else None}, Rollout)
    except msgspec.ValidationError as error:
        raise InvalidError(f"the roll-out of version {message.version} is malformed: {error}") from error
