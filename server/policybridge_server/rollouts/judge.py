"""The judge: promotes and withdraws versions that are rolled out, by their conditions."""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Literal

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.engine.trials import Trial, TrialKey, Trials
from policybridge_server.ledger.summary import Summary, Values, open_summary
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository.conditions import FAILED, Condition, parse_condition
from policybridge_server.repository.rollout import Rollout
from policybridge_server.repository.stored import StoredPolicy
from policybridge_server.rollouts.comparison import CONFIDENCE, Change, compare
from policybridge_server.rollouts.failing import ERROR, judged

_LOG = logging.getLogger(__name__)

_PERIOD: Final = 1.0
_REST: Final = 20
"""A comparison is followed by a pause of this multiple of its time, but at least of `_PERIOD` seconds."""

_ALONE: Final = 32
"""Reporters that are left out one by one."""

Verdict = Literal["promoted", "withdrawn", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """The result of a comparison."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Stand:
    """How far a comparison is.

    Attributes:
        files: that count without the reporter with the most files.
        all_files: that count with all reporters.
        leaves_out: that reporter; empty: there is none whom the operator does not trust.
        judgement: ``None``: the files are too few.

    """

    files: int
    all_files: int
    leaves_out: str = ""
    judgement: Judgement | None = None

    def progress(self, rollout: Rollout) -> str:
        """Say how many files there are and how many are needed."""
        needed = rollout.files << rollout.looks
        text = f"{self.files} of {needed} files, at this share {math.ceil(needed / rollout.share)} builds"
        if self.files == self.all_files:
            return text
        return f"{text} ({self.all_files} with {self.leaves_out}, whose word alone decides nothing)"


class Judge:
    """Watches the running roll-outs. Reads the ledger in a thread; all other work is done on the loop thread.

    A version is withdrawn as soon as more files fail with it than chance explains; see `failing`. For conditions, the
    versions are compared when both have compiled a roll-out's ``files``, twice as many, four times, and so on. If
    they were compared after each outcome, chance alone would promote every version in the end. The first comparison
    may err with half of 5 %, each further one with half as much as the one before, so that all together err with at
    most 5 %.

    Args:
        publisher: whose roll-outs are watched.
        trials: the files that failed in this process.
        ledger: the place of the outcomes, and its kind; ``None`` without a ledger.

    """

    def __init__(self, publisher: Publisher, trials: Trials, ledger: tuple[str, str | None] | None) -> None:
        self._publisher = publisher
        self._trials = trials
        self._ledger = ledger
        self._told: dict[str, str] = {}

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
            # The same at each try, until an operator acts.
            if self._is_news(policy.name, str(error)):
                _LOG.warning("the roll-out of %s@%d cannot be judged: %s", policy.name, rollout.version, error)
        except Exception as error:
            # A fault of the server: the other roll-outs are judged all the same.
            if self._is_news(policy.name, repr(error)):
                _LOG.exception("the roll-out of %s@%d cannot be judged", policy.name, rollout.version)

    def _is_news(self, policy: str, told: str) -> bool:
        before, self._told[policy] = self._told.get(policy), told
        return told != before

    async def _judge(self, policy: StoredPolicy, rollout: Rollout) -> None:
        rollouts = self._publisher.rollouts
        if policy.shared_out is None:
            await rollouts.end(policy.name, "withdrawn", _overtaken(policy, rollout), version=rollout.version)
            return
        told, failing = await self._failing(policy.name, rollout)
        if failing:
            await rollouts.end(policy.name, "withdrawn", failing, version=rollout.version)
        elif self._ledger is not None and (rollout.promote_if or rollout.withdraw_if):
            stand = await asyncio.to_thread(self._read, *self._ledger, policy.name, rollout)
            told = f"{stand.progress(rollout)}; {told}"
            if stand.judgement is not None:
                await self._heed(policy.name, rollout, stand.judgement)
        rollouts.progress[policy.name] = told

    async def _heed(self, name: str, rollout: Rollout, judgement: Judgement) -> None:
        now = await self._publisher.rollouts.compared(name, judgement.reason)
        if judgement.verdict != "undecided" and now.version == rollout.version:
            await self._publisher.rollouts.end(name, judgement.verdict, judgement.reason, version=rollout.version)

    async def _failing(self, name: str, rollout: Rollout) -> tuple[str, str]:
        """Give how many files failed, and why the version is to be withdrawn for that; empty: it is not."""
        key = TrialKey(name, rollout.version, rollout.begun, rollout.share)
        trial = Trial()
        for trials in [self._trials.all, *await self._publisher.peers.gather("trials")]:
            if key in trials:
                trial.merge(trials[key])
        failing, others, evidence = judged(trial, rollout.share)
        told = f"{failing} files failed with {rollout.version}, {others} with {rollout.base}"
        if evidence < 1 / ERROR:
            return told, ""
        return told, f"{told}: if both failed alike, chance would do that once in {min(evidence, 1e9):,.0f} roll-outs"

    @staticmethod
    def _read(place: str, kind: str | None, policy: str, rollout: Rollout) -> Stand:
        with closing(open_summary(place, kind)) as summary:
            return stand_of(summary, policy, rollout)


def _overtaken(policy: StoredPolicy, rollout: Rollout) -> str:
    if rollout.version not in policy.versions:
        return f"version {rollout.version} is no longer served"
    return f"version {policy.highest} was published meanwhile"


def stand_of(summary: Summary, policy: str, rollout: Rollout) -> Stand:
    """Compare the versions if both have compiled enough files since the last time.

    No reporter whom the operator does not trust decides: the files must be enough without any one of them, and the
    verdict must be the same.
    """
    failed = summary.values(policy, rollout, FAILED)
    groups = _groups(failed)
    counts = {group: len(failed.pairs(group)) for group in groups}
    fewest = min(groups, key=lambda group: counts[group])
    stand = Stand(counts[fewest], counts[frozenset()], ", ".join(sorted(fewest)))
    if stand.files < rollout.files << rollout.looks:
        return stand
    confidence = 1 - (1 - CONFIDENCE) / 2 ** (rollout.looks + 1)
    promote = [parse_condition(text) for text in rollout.promote_if]
    withdraw = [parse_condition(text) for text in rollout.withdraw_if]
    names = dict.fromkeys(condition.name for condition in (*promote, *withdraw))
    values = {name: failed if name == FAILED else summary.values(policy, rollout, name) for name in names}
    verdicts: set[Verdict] = set()
    told: list[str] = []
    for group in groups:
        changes = {name: compare(name, found.pairs(group), confidence) for name, found in values.items()}
        verdicts.add(_verdict(promote, withdraw, changes))
        if not group:
            told = [str(change) if change else f"{name} is not known of two files" for name, change in changes.items()]
    if len(verdicts) > 1:
        told.append("without one reporter it would be another verdict")
    verdict = verdicts.pop() if len(verdicts) == 1 else "undecided"
    return replace(stand, judgement=Judgement(verdict, "; ".join(told)))


def _groups(values: Values) -> list[frozenset[str]]:
    """Give the reporters to leave out: none, and each one alone; the smallest are left out together."""
    known = [reporter for reporter, _ in values.reporters.most_common()]
    alone = [frozenset([reporter]) for reporter in known[:_ALONE]]
    return [frozenset(), *alone, *([frozenset(known[_ALONE:])] if known[_ALONE:] else [])]


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
