"""The page's view of the running server. For the loop thread: all of it is in memory."""

import itertools
from collections.abc import Mapping
from typing import Any, Final

from policybridge_core.errors import PreconditionError
from policybridge_core.text import without_paths
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.session import Session
from policybridge_server.repository import StoredPolicy
from policybridge_server.transports.contract import Host

_VERSIONS: Final = 50
"""Of one policy, the newest: a trainer publishes thousands."""

_FAILED: Final = ("fallback", "failed", "error", "other")
"""Of the states of `OUTCOMES`: a compilation that did not end well, or not with the policy."""

_SESSIONS: Final = 200


def server_state(host: Host) -> dict[str, Any]:
    """Give the policies with their versions, aliases and roll-outs, and the live sessions, the newest first."""
    engine = host.opener.engine
    live = engine.live()
    return {
        "publishes": host.config.allow_publish,
        "ledger": host.config.ledger is not None,
        "runs": bool(host.config.runs),
        "policies": [_policy(policy, engine, host.publisher.rollouts.progress) for policy in host.publisher.policies()],
        "troubles": _troubles(engine),
        "sessions": len(live),
        "live": [_live(session) for session in itertools.islice(reversed(live), _SESSIONS)],
    }


async def whole_state(host: Host) -> dict[str, Any]:
    """Give `server_state` with the sessions of all processes of the server."""
    own = server_state(host)
    others = await host.publisher.peers.gather("state")
    own["workers"] = {"count": host.publisher.peers.workers, "answering": 1 + len(others)}
    for other in others:
        own["sessions"] += other["sessions"]
        own["troubles"] = [*own["troubles"], *other["troubles"]]
        for policy, theirs in zip(own["policies"], other["policies"], strict=False):
            policy["progress"] = policy["progress"] or theirs["progress"]
        own["live"] = [*own["live"], *other["live"]][:_SESSIONS]
        _add_versions(own["policies"], other["policies"])
    return own


def _add_versions(policies: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Add another process's numbers of each version; both serve the same versions."""
    versions_elsewhere = {(policy["name"], each["version"]): each for policy in others for each in policy["versions"]}
    for policy in policies:
        for version in policy["versions"]:
            other = versions_elsewhere.get((policy["name"], version["version"]))
            if other is not None:
                version["loaded"] = version["loaded"] or other["loaded"]
                version["sessions"] += other["sessions"]
                version["error"] = version["error"] or other["error"]


def _policy(policy: StoredPolicy, engine: Engine, progress: Mapping[str, str]) -> dict[str, Any]:
    broken = isinstance(policy.config, PreconditionError)
    numbers = sorted({*policy.versions, *policy.refused}, reverse=True)
    shown = [number for index, number in enumerate(numbers) if index < _VERSIONS or policy.named(number)]
    return {
        "name": policy.name,
        "description": "" if broken else policy.usable.description,
        "backend": "" if broken else policy.usable.backend,
        "error": without_paths(str(policy.config)) if broken else "",
        "latest": policy.latest,
        "aliases": dict(policy.aliases),
        "count": len(numbers),
        "versions": [_version(policy, number, engine) for number in shown],
        "rollout": policy.rollout,
        "shares": policy.shared_out is not None,
        "progress": progress.get(policy.name, "") if policy.shared_out is not None else "",
    }


def _version(policy: StoredPolicy, number: int, engine: Engine) -> dict[str, Any]:
    if number in policy.refused:
        error = without_paths(str(policy.refused[number]))
        return {"version": number, "digest": "", "loaded": False, "sessions": 0, "error": error}
    stored = policy.versions[number]
    loaded = engine.versions.get(stored.policy)
    return {
        "version": number,
        "digest": stored.policy.digest,
        "loaded": loaded is not None,
        "sessions": loaded.sessions if loaded else 0,
        "error": without_paths(loaded.trouble) if loaded else "",
    }


def _troubles(engine: Engine) -> list[dict[str, Any]]:
    """Give what went wrong with each version: failed evaluations, failed compilations, decisions without the policy."""
    failures = {loaded.counters: loaded.failures for loaded in engine.versions.loaded}
    return [
        {
            "policy": each.policy,
            "version": each.version,
            "failures": failures.get(each, 0),
            "failed": sum(each.outcomes[status] for status in _FAILED),
            "fallbacks": each.fallbacks,
        }
        for each in engine.counters.versions
    ]


def _live(session: Session) -> dict[str, Any]:
    view = session.view
    return {
        "id": view.id,
        "policy": view.policy.name,
        "version": view.policy.version,
        "file": view.file,
        "context": view.context,
        "labels": dict(view.labels),
        "explores": view.exploration is not None,
    }
