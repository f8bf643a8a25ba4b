"""What was measured: one file that is drawn, compared and read by others."""

import csv
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import numpy as np

from policybridge_bench.load import Latencies
from policybridge_serdes.errors import InvalidError

SHARES: Final = (*range(0, 100, 5), 97, 98, 99, 99.5, 99.9, 99.99, 100)
"""The percentiles that are kept of each round, for plots."""

_FORMAT: Final = 1


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured once in each round.

    Attributes:
        contender: who answers.
        way: by which transport and call.
        generator: what asks: ``native``, ``wire`` or ``python``.
        clients: how many ask at once.
        payload: what they send.
        serdes: how values travel.
        backend: what evaluates the policy.
        rate: open loop: asks per second of all clients together; absent: closed loop.

    """

    contender: str
    way: str
    generator: str
    clients: int
    payload: str = "inliner"
    serdes: str = ""
    backend: str = ""
    rate: float | None = None

    @property
    def name(self) -> str:
        """All of it in one line; unique in a run."""
        words = [self.contender, self.way, self.serdes, self.backend, self.payload, self.generator, f"×{self.clients}"]
        return " ".join([*filter(None, words), *([f"{self.rate:g}/s"] if self.rate else [])])


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one round.

    Attributes:
        p50, p90, p99, p999: latencies in µs.
        throughput: decisions per second, of all clients together.
        count: of decisions.
        spectrum: latencies in µs at the percentiles of `SHARES`.
        client_cpu: µs of CPU per decision, on the side that asks.
        server_cpu: the same on the side that answers; ``None`` where that is not known.
        server_rss: bytes of memory there afterwards.

    """

    p50: float
    p90: float
    p99: float
    p999: float
    throughput: float
    count: int
    spectrum: list[float]
    client_cpu: float
    server_cpu: float | None = None
    server_rss: int | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A case and its rounds, in the order in which they were measured."""

    case: Case
    rounds: list[Round]

    def median(self, figure: str) -> float | None:
        """Give the median over the rounds of one of a round's figures."""
        values = [getattr(each, figure) for each in self.rounds]
        return None if None in values or not values else float(median(values))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        format: of this file.
        machine: what it ran on.
        regime: ``quiet``, or ``busy`` where all cores were kept awake.
        seconds: for each case in each round.
        cases: what was measured.
        skipped: contenders that could not take part, and why.
        figures: what the scenario says beside its cases, by a name that has the unit.

    """

    format: int = _FORMAT
    machine: dict[str, str]
    regime: str
    seconds: float
    cases: list[Measured]
    skipped: dict[str, str] = {}
    figures: dict[str, float] = {}


def summary(latencies: Sequence[Latencies], rate: float, client_cpu: float) -> Round:
    """Make a round of what its clients saw."""
    together = np.concatenate(latencies)
    if not together.size:
        raise InvalidError("no client was answered even once; measure for longer, or at a higher rate")
    p50, p90, p99, p999 = np.percentile(together, (50, 90, 99, 99.9)).tolist()
    spectrum = np.percentile(together, SHARES).round(2).tolist()
    return Round(
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        throughput=rate,
        count=len(together),
        spectrum=spectrum,
        client_cpu=client_cpu,
    )


def timed(call: Callable[[], object], seconds: float = 0.0, *, calls: int = 1, block: int = 1) -> Round:
    """Call again and again, in this process, and make a round of the latencies.

    It ends after ``seconds``, but not before the latencies are ``calls``. Each latency is the mean of ``block`` calls.
    """
    latencies: list[float] = []
    clock = time.perf_counter
    used, end, ended = time.process_time(), clock() + seconds, 0.0
    while len(latencies) < calls or ended < end:
        started = clock()
        for _ in range(block):
            call()
        ended = clock()
        latencies.append((ended - started) / block * 1e6)
    cpu = (time.process_time() - used) / (len(latencies) * block) * 1e6
    return summary([np.array(latencies, np.float32)], len(latencies) / sum(latencies) * 1e6, cpu)


def machine() -> dict[str, str]:
    """Say what this runs on."""
    packages = ("policybridge", "numpy", "grpcio", "protobuf")
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write_json(run: Run, file: Path) -> None:
    """Write all of it."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))


def read_json(file: Path) -> Run:
    """Read what `write_json` wrote.

    Raises:
        InvalidError: the file cannot be read, or is none of these.

    """
    try:
        run = msgspec.json.decode(file.read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidError(f"{file} is no result of policybridge bench: {error}") from error
    if run.format != _FORMAT:
        raise InvalidError(f"{file} has the format {run.format}; this version reads {_FORMAT}")
    return run


def write_csv(run: Run, file: Path) -> None:
    """Write a line per case and round."""
    figures = [name for name in Round.__struct_fields__ if name != "spectrum"]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["regime", *Case.__struct_fields__, "round", *figures])
        for measured in run.cases:
            case = [getattr(measured.case, name) for name in Case.__struct_fields__]
            for number, each in enumerate(measured.rounds):
                writer.writerow([run.regime, *case, number, *(getattr(each, name) for name in figures)])
