"""What the metrics are made of: copies of all numbers of one moment, taken on the loop thread within microseconds."""

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
        counters: a copy of them.
        failures: evaluations that failed; ``None`` where the version is not loaded any more.
        troubled: whether it does not answer at present.

    """

    counters: VersionCounters
    failures: int | None
    troubled: bool


@dataclass(frozen=True)
class Snapshot:
    """The numbers of one moment.

    Attributes:
        versions: those that are loaded, and those that were unloaded last.
        loaded: how many are loaded.
        totals: what is counted for the whole server, by the names of `Counters`.
        errors: what clients were told, by transport and status.
        publications: by their result.
        turns: of the loop, in nanoseconds.
        ready: whether a new session can be opened.
        ledger: its state; ``None`` without a ledger.
        ledger_files: of which its size is the sum; none of a ledger in a database.
        processes: their numbers.
        workers: how many processes serve, if all are well.
        answering: how many of them have told these numbers now.

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
