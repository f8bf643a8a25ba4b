"""Snapshots for the metrics: copies of all numbers at one moment, taken on the loop thread within microseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_server.counters import Counters, Histogram, VersionCounters
from policybridge_server.ledger.place import parse_place
from policybridge_server.ledger.recorder import LedgerState
from policybridge_server.transports.contract import Host


@dataclass(frozen=True)
class VersionSnapshot:
    """The numbers of one version.

    Attributes:
        counters: a copy of the counters.
        failures: failed evaluations; ``None`` if the version is no longer loaded.
        troubled: whether the version does not answer at present.

    """

    counters: VersionCounters
    failures: int | None
    troubled: bool


@dataclass(frozen=True)
class Snapshot:
    """The numbers of one moment.

    Attributes:
        versions: the loaded versions, and the last unloaded ones.
        loaded: the number of loaded versions.
        totals: the counters of the whole server, by the names of `Counters`.
        errors: errors sent to clients, by transport and status.
        publications: number by result.
        turns: busy times of the loop, in nanoseconds.
        ready: whether the server can open a new session.
        ledger: its state; ``None`` without a ledger.
        ledger_files: the files whose sizes add up to the ledger's; none for a ledger in a database.
        processes: the processes' numbers.
        workers: the configured number of processes.
        answering: the number of processes in these numbers.

    """

    versions: Sequence[VersionSnapshot]
    loaded: int
    totals: Mapping[str, float]
    errors: Mapping[tuple[str, str], int]
    publications: Mapping[str, int]
    turns: Histogram
    ready: bool
    ledger: LedgerState | None
    ledger_files: Sequence[Path]
    processes: Sequence[int]
    workers: int
    answering: int


def snapshot(host: Host) -> Snapshot:
    """Copy the numbers of a server. For the loop thread."""
    engine = host.opener.engine
    counters, loaded = engine.counters, {version.counters: version for version in engine.versions.loaded}
    versions = [
        VersionSnapshot(
            counted.copy(),
            loaded[counted].failures if counted in loaded else None,
            bool(counted in loaded and loaded[counted].trouble),
        )
        for counted in counters.versions
    ]
    place = None if host.config.ledger is None else parse_place(host.config.ledger)
    return Snapshot(
        versions=versions,
        loaded=len(loaded),
        totals=_totals(counters),
        errors=dict(counters.errors),
        publications=dict(counters.publications),
        turns=counters.turns.copy(),
        ready=host.opener.is_ready,
        ledger=None if host.recorder is None else host.recorder.state,
        ledger_files=[place, place.with_name(f"{place.name}-wal")] if isinstance(place, Path) else [],
        processes=host.publisher.peers.processes,
        workers=host.publisher.peers.workers,
        answering=1,
    )


def _totals(counters: Counters) -> Mapping[str, float]:
    return {
        "loads": counters.loads,
        "load_failures": counters.load_failures,
        "load_seconds": counters.load_seconds,
        "unloads": counters.unloads,
    }
