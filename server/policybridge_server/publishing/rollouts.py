"""Roll-outs: a share of an alias's new sessions gets another version, until it is promoted or withdrawn."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import msgspec

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.recorder import wait_recorded
from policybridge_server.publishing.peers import Peers
from policybridge_server.publishing.permission import Permission
from policybridge_server.repository import LATEST, Repository, StoredPolicy
from policybridge_server.repository.conditions import parse_condition
from policybridge_server.repository.rollout import FILES, Rollout, RolloutStep

_LOG = logging.getLogger(__name__)

_Change = Callable[[StoredPolicy], Rollout]


@dataclass(frozen=True)
class Wanted:
    """What somebody wants to roll out.

    Attributes:
        version: of the policy.
        share: of the files of new sessions, above 0 and up to 1.
        alias: whose sessions are shared out.
        promote_if: see `Rollout`.
        withdraw_if: likewise.
        files: likewise.

    Raises:
        InvalidError: the share or a condition is none.

    """

    version: int
    share: float
    alias: str = LATEST
    promote_if: tuple[str, ...] = ()
    withdraw_if: tuple[str, ...] = ()
    files: int = FILES

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidError(f"a share is above 0 and at most 1 (100%), not {self.share:g}")
        for condition in (*self.promote_if, *self.withdraw_if):
            parse_condition(condition)
        if self.files < 2:
            raise InvalidError(f"two files at least are compared, not {self.files}")


class Rollouts:
    """Begins and ends roll-outs, one of a policy at a time. For the loop thread.

    Every step is on the disk, beside the policy's aliases, before it counts, and then in the ledger, if there is one.

    Args:
        opener: of the engine whose sessions are shared out.
        permission: which changes clients may make.
        peers: the server's other processes.

    """

    def __init__(self, opener: SessionOpener, permission: Permission, peers: Peers) -> None:
        self._opener = opener
        self._permission = permission
        self._peers = peers
        self._engine = opener.engine
        self._repository = opener.engine.repository

    async def begin(self, name: str, wanted: Wanted) -> Rollout:
        """Begin a roll-out of the policy ``name``, or change the one of this version that runs.

        Raises:
            InvalidError: the share or a condition is none.
            NotFoundError: there is no such policy, version or alias.
            PreconditionError: another roll-out runs, the operator does not allow it, the version cannot be loaded, or
                there are conditions and no ledger.

        """
        self._permission.check()
        if (wanted.promote_if or wanted.withdraw_if) and not self._engine.records:
            raise PreconditionError("conditions compare outcomes, which this server does not record; see --ledger")
        # Load it first: sessions must not wait for it, and one that is broken must get none.
        loaded = await self._opener.version(PolicyReference(name, version=wanted.version))
        await self._peers.prepare(loaded.stored, published=False)
        changes = self._running(name) is not None
        return await self._change(name, "changed" if changes else "begun", partial(_begun, wanted))

    async def end(self, name: str, state: Literal["promoted", "withdrawn"], reason: str = "") -> Rollout:
        """End the roll-out of the policy ``name``.

        Raises:
            NotFoundError: there is no such policy.
            PreconditionError: no roll-out runs, or the operator does not allow it.

        """
        self._permission.check()
        return await self._change(name, state, partial(_ended, state, reason))

    async def compared(self, name: str, reason: str) -> Rollout:
        """Note that the versions were compared, and what came of it; see `end`."""
        self._permission.check()
        return await self._change(name, "compared", partial(_compared, reason))

    def _running(self, name: str) -> Rollout | None:
        rollout = self._repository.policy(name).rollout
        return rollout if rollout is not None and rollout.running else None

    async def _change(self, name: str, what: str, change: _Change) -> Rollout:
        async with self._opener.changing():
            policy = self._permission.writable(name)
            rollout = change(policy)
            moved = rollout.state == "promoted" and rollout.alias != LATEST
            changed = {**policy.changed, rollout.alias: rollout.version} if moved else policy.changed
            await asyncio.to_thread(_write, self._repository, policy, changed if moved else None, rollout)
            self._repository.put(replace(policy, rollout=rollout, changed=changed))
            self._engine.versions.unload_unused()
            await self._peers.take(self._repository.policy(name))
        _LOG.info("roll-out of %s@%d: %s %s", name, rollout.version, what, rollout.reason)
        await self._record(RolloutStep(name, what, rollout, time.time()))
        return rollout

    async def _record(self, step: RolloutStep) -> None:
        try:
            await wait_recorded(partial(self._engine.record, step))
        except PolicyBridgeError as error:
            # It counts all the same: it is written down beside the aliases.
            _LOG.warning("the ledger lacks a step of the roll-out of %s: %s", step.policy, error)


def _write(repository: Repository, policy: StoredPolicy, aliases: Mapping[str, int] | None, rollout: Rollout) -> None:
    try:
        # The alias first: after a crash between the two, both ways lead to the version that is promoted.
        if aliases is not None:
            repository.write_aliases(policy.folder, aliases)
        repository.write_rollout(policy.folder, rollout)
    except OSError as error:
        raise PreconditionError(f"the repository cannot be written: {error.strerror}") from error


def _begun(wanted: Wanted, policy: StoredPolicy) -> Rollout:
    policy.resolve(PolicyReference(policy.name, version=wanted.version))
    now = policy.rollout
    settings = {
        "share": wanted.share,
        "promote_if": wanted.promote_if,
        "withdraw_if": wanted.withdraw_if,
        "files": wanted.files,
    }
    if now is not None and now.running:
        if (now.version, now.alias) != (wanted.version, wanted.alias):
            raise PreconditionError(
                f"{policy.name}@{now.version} is being rolled out to {now.alias}; promote or withdraw it first"
            )
        return msgspec.structs.replace(now, **settings, reason="", looks=0)
    base = _base(policy, wanted)
    return Rollout(version=wanted.version, base=base, alias=wanted.alias, begun=time.time(), **settings)  # type: ignore[arg-type]


def _base(policy: StoredPolicy, wanted: Wanted) -> int:
    """Give the version of the sessions that do not get the new one."""
    number = wanted.version
    if wanted.alias != LATEST:
        base = policy.resolve(PolicyReference(policy.name, alias=wanted.alias)).policy.version
        if base == number:
            raise PreconditionError(f"{policy.name}@{wanted.alias} is {number} already")
        return base
    if number != policy.highest:
        raise PreconditionError(
            f"{policy.name}@latest is {policy.highest} already; the newest version alone is rolled out to `latest`, any"
            " version to another alias"
        )
    before = policy.rollout
    if before is not None and before.alias == LATEST and before.state == "withdrawn" and before.base in policy.versions:
        # What was withdrawn must not come back as the version of the others.
        return before.base
    older = [each for each in policy.versions if each < number]
    if not older:
        raise PreconditionError(f"{policy.name}@{number} is the only version; there is none for the other sessions")
    return max(older)


def _ended(state: Literal["promoted", "withdrawn"], reason: str, policy: StoredPolicy) -> Rollout:
    return msgspec.structs.replace(_runs(policy), state=state, reason=reason, ended=time.time())


def _compared(reason: str, policy: StoredPolicy) -> Rollout:
    now = _runs(policy)
    return msgspec.structs.replace(now, reason=reason, looks=now.looks + 1)


def _runs(policy: StoredPolicy) -> Rollout:
    if policy.rollout is None or not policy.rollout.running:
        raise PreconditionError(f"no roll-out of {policy.name} runs")
    return policy.rollout


def check_not_rolled_out(policy: StoredPolicy, alias: str) -> None:
    """Check that no roll-out shares out the sessions of ``alias``.

    Raises:
        PreconditionError: one does.

    """
    rollout = policy.rollout
    if rollout is not None and rollout.running and rollout.alias == alias:
        raise PreconditionError(
            f"{policy.name}@{rollout.version} is being rolled out to {alias}; promote or withdraw it first"
        )
