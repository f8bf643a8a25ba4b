"""The sum of several processes' numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from policybridge_server.counters import Histogram, VersionCounters
from policybridge_server.ledger.recorder import LedgerState
from policybridge_server.telemetry.snapshot import Snapshot, VersionSnapshot, snapshot
from policybridge_server.transports.contract import Host

_TIMES: Final = ("read", "queued", "evaluated", "answered", "batches")


async def server_snapshot(host: Host) -> Snapshot:
    """Give the numbers of the whole server."""
    own = snapshot(host)
    others = await host.publisher.peers.snapshots(own)
    return merged([own, *others]) if others else own


def merged(snapshots: Sequence[Snapshot | None], *, past: bool = False) -> Snapshot:
    """Add snapshots; fields that cannot be added are taken from the first one.

    Args:
        snapshots: of several processes, at least one.
        past: whether the processes have ended, so that they have no open sessions, loaded versions or waiting records.

    """
    taken = [part for part in snapshots if part is not None]
    versions: dict[tuple[str, str], list[VersionSnapshot]] = {}
    for part in taken:
        for each in part.versions:
            versions.setdefault((each.counters.policy, each.counters.version), []).append(each)
    totals: Counter[str] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    publications: Counter[str] = Counter()
    for part in taken:
        totals.update(part.totals)
        errors.update(part.errors)
        publications.update(part.publications)
    return Snapshot(
        versions=[_version(each, past) for each in versions.values()],
        # Each process loads its own versions; one that lacks a policy may still load it for the first session.
        loaded=0 if past else max(part.loaded for part in taken),
        totals=totals,
        errors=errors,
        publications=publications,
        turns=_sum(part.turns for part in taken),
        ready=not past and any(part.ready for part in taken),
        ledger=_ledger([part.ledger for part in taken if part.ledger is not None], past),
        ledger_files=taken[0].ledger_files,
        processes=[] if past else [pid for part in taken for pid in part.processes],
        workers=taken[0].workers,
        answering=0 if past else sum(part.answering for part in taken),
    )


def _version(parts: Sequence[VersionSnapshot], past: bool) -> VersionSnapshot:
    first = parts[0].counters
    made = VersionCounters(first.policy, first.version)
    for name in _TIMES:
        setattr(made, name, _sum(getattr(part.counters, name) for part in parts))
    for part in parts:
        made.outcomes.update(part.counters.outcomes)
        made.opened += part.counters.opened
        made.closed += part.counters.closed
        made.fallbacks += part.counters.fallbacks
        made.made_by_clients += part.counters.made_by_clients
        made.asked_by_clients += part.counters.asked_by_clients
        made.checked += part.counters.checked
        made.differing += part.counters.differing
    if past:
        made.closed = made.opened
    known = [part.failures for part in parts if part.failures is not None]
    # If no process has it loaded, it has no state; the failures of an ended process still count.
    return VersionSnapshot(made, sum(known) if known else None, not past and any(part.troubled for part in parts))


def _ledger(parts: Sequence[LedgerState], past: bool) -> LedgerState | None:
    if not parts:
        return None
    made = LedgerState(
        sum(part.waiting_bytes for part in parts),
        sum(part.written_bytes for part in parts),
        max(part.lag for part in parts),
        sum(part.lost for part in parts),
        any(part.failing for part in parts),
        sum(part.spooled_bytes for part in parts),
        any(part.away for part in parts),
    )
    if not past:
        return made
    return replace(made, waiting_bytes=0, lag=0.0, failing=False, spooled_bytes=0, away=False)


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    made = Histogram()
    for histogram in histograms:
        made.buckets = [a + b for a, b in zip(made.buckets, histogram.buckets, strict=True)]
        made.total += histogram.total
    return made
