"""A policy's versions as people see them: size, sessions, signature, trouble."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from policybridge_serdes import PolicyVersion
from policybridge_server.backends.contract import ModelSignature
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.publishing.peers import Peers
from policybridge_server.repository import StoredPolicy, StoredVersion
from policybridge_server.repository.files import folder_size


@dataclass(frozen=True)
class VersionDescription:
    """A version for people: ``signature`` is set if it is loaded, ``error`` if it is refused, or hangs."""

    policy: PolicyVersion
    bytes: int = 0
    sessions: int = 0
    signature: ModelSignature | None = None
    error: str = ""


async def describe(policy: StoredPolicy, versions: LoadedVersions, peers: Peers) -> list[VersionDescription]:
    """Describe the versions of a policy, the newest first.

    Args:
        policy: in its present state.
        versions: loaded in this process.
        peers: the server's other processes, whose sessions count too.

    """
    sizes = await asyncio.to_thread(_sizes, policy)
    elsewhere: Counter[PolicyVersion] = Counter()
    for counts in await peers.gather("sessions"):
        elsewhere.update(counts)
    described = [
        _describe(stored, versions, sizes[number], elsewhere[stored.policy])
        for number, stored in policy.versions.items()
    ]
    described += [
        VersionDescription(PolicyVersion(policy.name, number, ""), error=str(error))
        for number, error in policy.refused.items()
    ]
    return sorted(described, key=lambda version: -version.policy.version)


def _sizes(policy: StoredPolicy) -> dict[int, int]:
    return {number: folder_size(version.folder) for number, version in policy.versions.items()}


def _describe(stored: StoredVersion, versions: LoadedVersions, size: int, elsewhere: int) -> VersionDescription:
    loaded = versions.get(stored.policy)
    if loaded is None:
        return VersionDescription(stored.policy, size, elsewhere)
    return VersionDescription(stored.policy, size, loaded.sessions + elsewhere, loaded.signature, loaded.trouble)
