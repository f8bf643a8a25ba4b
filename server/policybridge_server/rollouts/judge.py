"""The judge: promotes and withdraws versions that are rolled out, by their conditions."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.ledger.summary import Summary, open_summary
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository.conditions import FAILED, Condition, parse_condition
from policybridge_server.repository.rollout import Rollout
from policybridge_server.repository.stored import StoredPolicy
from policybridge_server.rollouts.comparison import CONFIDENCE, Change, compare

_LOG = logging.getLogger(__name__)

_PERIOD: Final = 1.0
_REST: Final = 20
"""A comparison is followed by a pause of so many times its length, but at least of `_PERIOD` seconds."""

Verdict = Literal["promoted", "withdrawn", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """What a comparison came to."""

    verdict: Verdict
    reason: str


class Judge:
    """Watches the roll-outs that run. Reads the ledger in a thread; all else is done on the loop thread.

    The versions are compared when both have compiled a roll-out's ``files``, twice as many, four times, and so on. If
    they were compared after each outcome, chance alone would promote every version in the end. The first comparison
    may err with half of 5 %, each further one with half as much as the one before, so that all together err with at
    most 5 %.

    Args:
        publisher: whose roll-outs are watched.
        policies: gives all policies as they are now.
        ledger: the place of the outcomes, and its kind; ``None``: there is none.

    """

    def __init__(self, publisher: Publisher, ledger: tuple[str, str | None] | None) -> None:
        self._publisher = publisher
        self._ledger = ledger
        self._told = ""

    async def watch(self) -> None:
        """Judge until the task is cancelled."""
        while True:
            begun = time.monotonic()
            for policy in self._publisher.policies():
                if policy.rollout is not None and policy.rollout.running and not self._publisher.is_replica:
                    await self._judge_or_tell(policy, policy.rollout)
            await asyncio.sleep(max(_PERIOD, _REST * (time.monotonic() - begun)))

    async def _judge_or_tell(self, policy: StoredPolicy, rollout: Rollout) -> None:
        try:
            await self._judge(policy, rollout)
        except PolicyBridgeError as error:
            # The same at each try, until somebody does something about it.
            if str(error) != self._told:
                self._told = str(error)
                _LOG.warning("the roll-out of %s@%d cannot be judged: %s", policy.name, rollout.version, error)
        except Exception as error:
            # A fault of the server: the other roll-outs are judged all the same.
            if repr(error) != self._told:
                self._told = repr(error)
                _LOG.exception("the roll-out of %s@%d cannot be judged", policy.name, rollout.version)

    async def _judge(self, policy: StoredPolicy, rollout: Rollout) -> None:
        rollouts = self._publisher.rollouts
        if policy.shared_out is None:
            await rollouts.end(policy.name, "withdrawn", _overtaken(policy, rollout))
        elif self._ledger is not None and (rollout.promote_if or rollout.withdraw_if):
            judgement = await asyncio.to_thread(self._read, *self._ledger, policy.name, rollout)
            if judgement is None:
                return
            now = await rollouts.compared(policy.name, judgement.reason)
            if judgement.verdict != "undecided" and now.version == rollout.version:
                await rollouts.end(policy.name, judgement.verdict, judgement.reason)

    @staticmethod
    def _read(place: str, kind: str | None, policy: str, rollout: Rollout) -> Judgement | None:
        with closing(open_summary(place, kind)) as summary:
            return judge(summary, policy, rollout)


def _overtaken(policy: StoredPolicy, rollout: Rollout) -> str:
    if rollout.version not in policy.versions:
        return f"version {rollout.version} is not served any more"
    return f"version {policy.highest} was published meanwhile"


def judge(summary: Summary, policy: str, rollout: Rollout) -> Judgement | None:
    """Compare the versions if both have compiled enough files since the last time; ``None``: they have not."""
    files = len(summary.pairs(policy, rollout.base, rollout.version, FAILED))
    if files < rollout.files << rollout.looks:
        return None
    confidence = 1 - (1 - CONFIDENCE) / 2 ** (rollout.looks + 1)
    promote = [parse_condition(text) for text in rollout.promote_if]
    withdraw = [parse_condition(text) for text in rollout.withdraw_if]
    names = dict.fromkeys(condition.name for condition in (*promote, *withdraw))
    changes = {
        name: compare(name, summary.pairs(policy, rollout.base, rollout.version, name), confidence) for name in names
    }
    told = [str(change) if change else f"{name} is not known of two files" for name, change in changes.items()]
    return Judgement(_verdict(promote, withdraw, changes), "; ".join(told))


def _verdict(promote: Sequence[Condition], withdraw: Sequence[Condition], changes: dict[str, Change | None]) -> Verdict:
    def holds(condition: Condition) -> bool:
        change = changes[condition.name]
        return change is not None and condition.holds(change.low, change.high)

    def refuted(condition: Condition) -> bool:
        change = changes[condition.name]
        return change is not None and condition.refuted(change.low, change.high)

    if any(map(holds, withdraw)) or any(map(refuted, promote)):
        return "withdrawn"
    return "promoted" if promote and all(map(holds, promote)) else "undecided"
