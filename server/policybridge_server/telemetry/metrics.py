"""The metrics in Prometheus's format, made of the server's numbers only when they are read."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from policybridge_core.version import version
from policybridge_server.budget.work import Work
from policybridge_server.counters import Histogram
from policybridge_server.telemetry.merging import server_snapshot
from policybridge_server.telemetry.snapshot import Snapshot, VersionSnapshot
from policybridge_server.transports.contract import Host

_OF: Final = ("policy", "version")

_TIMES: Final = range(10, 34)
"""Bits of nanoseconds: buckets from 1 µs to 8.6 s."""

_SIZES: Final = range(11)
"""Bits of a batch's size: buckets up to 1, 3, 7 … 1023 observations, and of size 0."""

_STAGES: Final = {"read": "read", "queue": "queued", "model": "evaluated", "answer": "answered"}
"""The stage of a decision → its histogram in `VersionCounters`."""


class Metrics:
    """The metrics of one server.

    Args:
        host: the server.

    """

    def __init__(self, host: Host) -> None:
        self._host = host

    async def page(self, accept: str, work: Work) -> tuple[bytes, str]:
        """Give the text of all metrics in a format that the reader accepts, and its content type.

        The numbers are copied on the loop thread; the text is ``work`` of the reader, so that no compiler waits for it.
        """
        return await work.run(_text, await server_snapshot(self._host), accept)


def _text(taken: Snapshot, accept: str) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    registry.register(_Taken(taken))
    registry.register(_Processes(taken.processes))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class _Taken(Collector):
    """Gives a snapshot's families to a registry."""

    def __init__(self, taken: Snapshot) -> None:
        self._taken = taken

    def collect(self) -> Iterable[Metric]:
        """Give all families."""
        yield InfoMetricFamily("policybridge_build", "The server's version.", {"version": version()})
        yield _gauge("ready", "Whether a new session can be opened.", float(self._taken.ready))
        yield _gauge("workers", "Processes that serve, if all are well.", self._taken.workers)
        yield _gauge("workers_answering", "Processes that serve, and that answer now.", self._taken.answering)
        yield from _sessions(self._taken.versions)
        yield from _decisions(self._taken.versions)
        yield from _outcomes(self._taken.versions)
        yield from _versions(self._taken)
        yield from _whole(self._taken)
        yield from _ledger(self._taken)


class _Processes(Collector):
    """Adds up the system's numbers of the server's processes."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes

    def collect(self) -> Iterable[Metric]:
        """Give memory, processor time and descriptors of all; of the starts the first one."""
        metrics: dict[str, Metric] = {}
        for pid in self._processes:
            collector = ProcessCollector(pid=partial(int, pid), registry=None)
            for metric in collector.collect():
                known = metrics.setdefault(metric.name, metric)
                if known is not metric:
                    add = min if metric.name == "process_start_time_seconds" else float.__add__
                    known.samples = [
                        before._replace(value=add(float(before.value), float(sample.value)))
                        for before, sample in zip(known.samples, metric.samples, strict=True)
                    ]
        return metrics.values()


def _sessions(versions: Sequence[VersionSnapshot]) -> Iterator[Metric]:
    opened = CounterMetricFamily("policybridge_sessions_opened", "Sessions that were opened.", labels=_OF)
    live = GaugeMetricFamily("policybridge_sessions", "Sessions that are open.", labels=_OF)
    for each in versions:
        opened.add_metric(_labels(each), each.counters.opened)
        live.add_metric(_labels(each), each.counters.sessions)
    yield from (opened, live)


def _decisions(versions: Sequence[VersionSnapshot]) -> Iterator[Metric]:
    made = CounterMetricFamily("policybridge_decisions", "Answered decisions.", labels=_OF)
    failed = CounterMetricFamily(
        "policybridge_policy_failures", "Evaluations at which the policy itself failed.", labels=_OF
    )
    seconds = HistogramMetricFamily(
        "policybridge_decision_seconds",
        "Seconds that decisions spent in each stage: read (and decode), queue, model, answer (encode and send).",
        labels=[*_OF, "stage"],
    )
    sizes = HistogramMetricFamily("policybridge_batch_size", "Observations in one run of a batch.", labels=_OF)
    by_clients = CounterMetricFamily(
        "policybridge_client_decisions",
        "Decisions that clients made by the policy's form: all, those that the server made again, and those of them "
        "in which its advice is another one; and those that such clients asked for.",
        labels=[*_OF, "result"],
    )
    for each in versions:
        made.add_metric(_labels(each), each.counters.decisions)
        by_clients.add_metric([*_labels(each), "reported"], each.counters.made_by_clients)
        by_clients.add_metric([*_labels(each), "asked"], each.counters.asked_by_clients)
        by_clients.add_metric([*_labels(each), "checked"], each.counters.checked)
        by_clients.add_metric([*_labels(each), "differing"], each.counters.differing)
        if each.failures is not None:
            failed.add_metric(_labels(each), each.failures)
        for stage, name in _STAGES.items():
            _add_times(seconds, [*_labels(each), stage], getattr(each.counters, name))
        _add(sizes, _labels(each), each.counters.batches, _SIZES, 1)
    yield from (made, by_clients, failed, seconds, sizes)


def _outcomes(versions: Sequence[VersionSnapshot]) -> Iterator[Metric]:
    reported = CounterMetricFamily(
        "policybridge_outcomes", "Outcomes of sessions that clients reported, by status.", labels=[*_OF, "status"]
    )
    fallbacks = CounterMetricFamily(
        "policybridge_fallback_decisions", "Decisions that clients report as made without the policy.", labels=_OF
    )
    for each in versions:
        for status, count in each.counters.outcomes.items():
            reported.add_metric([*_labels(each), status], count)
        fallbacks.add_metric(_labels(each), each.counters.fallbacks)
    yield from (reported, fallbacks)


def _versions(taken: Snapshot) -> Iterator[Metric]:
    totals = taken.totals
    published = CounterMetricFamily(
        "policybridge_publications", "Versions that clients or folders gave.", labels=["result"]
    )
    for result, count in taken.publications.items():
        published.add_metric([result], count)
    loads = CounterMetricFamily("policybridge_version_loads", "Versions that were loaded, or not.", labels=["result"])
    loads.add_metric(["loaded"], totals["loads"])
    loads.add_metric(["failed"], totals["load_failures"])
    troubled = GaugeMetricFamily(
        "policybridge_version_troubled", "Whether a loaded version does not answer at present.", labels=_OF
    )
    for each in taken.versions:
        if each.failures is not None:
            troubled.add_metric(_labels(each), float(each.troubled))
    yield from (published, loads, troubled)
    yield _counter("version_load_seconds", "Seconds that loading took in all.", totals["load_seconds"])
    yield _counter("version_unloads", "Versions that were unloaded.", totals["unloads"])
    yield _gauge("versions_loaded", "Versions that are loaded.", taken.loaded)


def _whole(taken: Snapshot) -> Iterator[Metric]:
    errors = CounterMetricFamily("policybridge_errors", "Errors sent to clients.", labels=["transport", "status"])
    for labels, count in taken.errors.items():
        errors.add_metric(labels, count)
    yield errors
    turns = HistogramMetricFamily(
        "policybridge_loop_turn_seconds", "Seconds that the loop was busy between two waits; long ones are stalls."
    )
    _add_times(turns, [], taken.turns)
    yield turns


def _ledger(taken: Snapshot) -> Iterator[Metric]:
    state = taken.ledger
    if state is None:
        return
    yield _gauge("ledger_waiting_bytes", "Bytes of memory of records that are not written yet.", state.waiting_bytes)
    yield _gauge("ledger_lag_seconds", "Seconds since all records were written.", state.lag)
    yield _gauge("ledger_failing", "Whether the ledger cannot be written now.", float(state.failing))
    yield _gauge("ledger_away", "Whether the ledger's database is away; records wait in the spool.", float(state.away))
    yield _gauge("ledger_spooled_bytes", "Bytes on disk of records that wait for the database.", state.spooled_bytes)
    yield _gauge("ledger_size_bytes", "Bytes of the ledger's files.", sum(map(_size, taken.ledger_files)))
    yield _counter("ledger_written_bytes", "Bytes of memory of records that were written.", state.written_bytes)
    yield _counter("ledger_lost_decisions", "Decisions that the ledger had no room for.", state.lost)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"policybridge_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"policybridge_{name}", text, value)


def _labels(each: VersionSnapshot) -> list[str]:
    return [each.counters.policy, each.counters.version]


def _add_times(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    _add(family, labels, histogram, _TIMES, 1e9)


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram, bits: range, unit: float) -> None:
    """Add a histogram with a bucket for each number of ``bits``; the last one is for all that are larger."""
    buckets, below = [], sum(histogram.buckets[: bits.start])
    for size in bits:
        below += histogram.buckets[size]
        buckets.append((repr(((1 << size) - 1) / unit), below))
    buckets.append(("+Inf", histogram.count))
    family.add_metric(labels, buckets, histogram.total / unit)
