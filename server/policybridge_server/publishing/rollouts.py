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
    """A requested roll-out.

    Attributes:
        version: the policy's version.
        share: the share of the files of new sessions, above 0 and up to 1.
        alias: the alias whose sessions are shared out.
        promote_if: see `Rollout`.
        withdraw_if: likewise.
        files: likewise.

    Raises:
        InvalidError: the share or a condition is malformed.

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

    Attributes:
        progress: policy → how far the comparison of its roll-out is; known in the process that compares.

    Every step is written to the disk, beside the policy's aliases, before it counts, and then to the ledger, if any.

    Args:
        opener: opens the sessions to share out.
        permission: the changes that clients may make.
        peers: the server's other processes.

    """

    def __init__(self, opener: SessionOpener, permission: Permission, peers: Peers) -> None:
        self._opener = opener
        self._permission = permission
        self._peers = peers
        self._engine = opener.engine
        self._repository = opener.engine.repository
        self.progress: dict[str, str] = {}

    async def begin(self, name: str, wanted: Wanted) -> Rollout:
        """Begin a roll-out of the policy ``name``, or change the running one of this version.

        Raises:
            InvalidError: the share or a condition is malformed.
            NotFoundError: there is no such policy, version or alias.
            PreconditionError: another roll-out runs, the operator does not allow it, the version cannot be loaded, or
                there are conditions and no ledger.

        """
        self._permission.check()
        if (wanted.promote_if or wanted.withdraw_if) and not self._engine.records:
            raise PreconditionError("conditions compare outcomes, which this server does not record; see --ledger")
        # Load it first: sessions must not wait for it, and a broken version must get none.
        loaded = await self._opener.version(PolicyReference(name, version=wanted.version))
        await self._peers.prepare(loaded.stored, published=False)
        changes = self._running(name) is not None
        return await self._change(name, "changed" if changes else "begun", partial(_begun, wanted))

    async def end(
        self, name: str, state: Literal["promoted", "withdrawn"], reason: str = "", *, version: int | None = None
    ) -> Rollout:
        """End the roll-out of the policy ``name``; with ``version``, only if that is rolled out.

        Raises:
            NotFoundError: there is no such policy.
            PreconditionError: no roll-out runs, or one of another version, or the operator does not allow it.

        """
        self._permission.check()
        return await self._change(name, state, partial(_ended, state, reason, version))

    async def roll_back(self, name: str, back: "Back") -> Rollout:
        """Let ``latest`` of the policy ``name`` name an earlier version, or a later one again.

        Returns:
            The step: ``version`` was `latest`, and ``base`` is now; after a way forward, the other way round.

        Raises:
            NotFoundError: there is no such policy or version.
            PreconditionError: there is no version before, `latest` is another version than the one to be left, the
                version cannot be loaded, or the operator does not allow it.

        """
        self._permission.check()
        target = back.target(self._permission.writable(name))
        # Load it first: a broken version must not replace one that answers.
        loaded = await self._opener.version(PolicyReference(name, version=target))
        await self._peers.prepare(loaded.stored, published=False)
        return await self._change(name, "rolled back", partial(_rolled_back, replace(back, to=target)))

    async def compared(self, name: str, reason: str) -> Rollout:
        """Record a comparison of the versions, and the reason for the next step; see `end`."""
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
            kept = _beside(policy.rollout, rollout)
            await asyncio.to_thread(_write, self._repository, policy, changed if moved else None, kept)
            self._repository.put(replace(policy, rollout=kept, changed=changed))
            self._engine.versions.unload_unused()
            await self._peers.take(self._repository.policy(name))
        _LOG.info("roll-out of %s@%d: %s %s", name, rollout.version, what, rollout.reason)
        await self._record(RolloutStep(name, what, rollout, time.time()))
        return rollout

    async def _record(self, step: RolloutStep) -> None:
        try:
            await wait_recorded(partial(self._engine.record, step))
        except PolicyBridgeError as error:
            # The step counts all the same, because it is written beside the aliases.
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
    # A withdrawn version must not become `latest` again because of another roll-out.
    withdrawn = _held_back(policy) - ({wanted.version} if wanted.alias == LATEST else set())
    return Rollout(
        version=wanted.version,
        base=base,
        alias=wanted.alias,
        begun=time.time(),
        withdrawn=tuple(sorted(withdrawn)),
        **settings,  # type: ignore[arg-type]
    )


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
            f"{policy.name}@latest is {policy.highest} already; only the newest version is rolled out to `latest`, any"
            " version to another alias"
        )
    others = [each for each in policy.versions if each != number and not policy.holds_back(each)]
    if not others:
        raise PreconditionError(f"{policy.name}@{number} is the only version; there is none for the other sessions")
    return max(others)


def _held_back(policy: StoredPolicy) -> set[int]:
    return {number for number in policy.versions if policy.holds_back(number)}


@dataclass(frozen=True)
class Back:
    """A requested way back for ``latest``.

    Attributes:
        to: the version that it names then; ``None``: the one before.
        leaves: the version that it must name now; ``None``: any.
        reason: for people.

    """

    to: int | None = None
    leaves: int | None = None
    reason: str = ""

    def target(self, policy: StoredPolicy) -> int:
        """Give the version that ``latest`` is to name.

        Raises:
            NotFoundError: the policy has no such version.
            PreconditionError: there is none, or ``latest`` is another version than the one to be left.

        """
        latest, name = policy.latest, policy.name
        if self.leaves not in (None, latest):
            raise PreconditionError(f"{name}@latest is {latest}, and not {self.leaves}; --to N says where it goes")
        if self.to is not None:
            policy.resolve(PolicyReference(name, version=self.to))
            if self.to == latest:
                raise PreconditionError(f"{name}@latest is {latest} already")
            return self.to
        latest = policy.resolve(PolicyReference(name)).policy.version
        shared_out = policy.shared_out
        if shared_out is not None and shared_out.alias == LATEST:
            raise PreconditionError(
                f"{name}@{shared_out.version} is being rolled out to latest: withdraw it, or say --to N"
            )
        before = [number for number in policy.versions if number < latest and not policy.holds_back(number)]
        if not before:
            raise PreconditionError(f"{name} has no version before {latest}; --to N names one of the others")
        return max(before)


def _rolled_back(back: Back, policy: StoredPolicy) -> Rollout:
    # Without any `latest`, a version that gets a name again is a way forward.
    target, latest = back.target(policy), policy.latest or 0
    withdrawn = _held_back(policy) - {target} | {number for number in policy.versions if number > target}
    forward = target > latest
    running = policy.shared_out is not None and policy.shared_out.alias == LATEST
    now = time.time()
    return Rollout(
        version=target if forward else policy.rollout.version if running and policy.rollout else latest,
        base=latest if forward else target,
        alias=LATEST,
        share=1.0,
        state="promoted" if forward else "withdrawn",
        reason=back.reason,
        begun=now,
        ended=now,
        withdrawn=tuple(sorted(withdrawn)),
    )


def _beside(before: Rollout | None, now: Rollout) -> Rollout:
    """Give the roll-out for the disk: one to another alias goes on when `latest` goes back."""
    if before is None or not before.running or now.running or before.alias == now.alias:
        return now
    return msgspec.structs.replace(before, withdrawn=now.withdrawn)


def _ended(state: Literal["promoted", "withdrawn"], reason: str, version: int | None, policy: StoredPolicy) -> Rollout:
    now = _runs(policy)
    if version not in (None, now.version):
        raise PreconditionError(f"{policy.name}@{now.version} is being rolled out, and not {version}")
    return msgspec.structs.replace(now, state=state, reason=reason, ended=time.time())


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
