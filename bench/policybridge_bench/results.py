"""The results of a run, for the table, the page, files and comparisons."""

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
from msgspec.structs import asdict

from policybridge_bench.load import Latencies
from policybridge_core.errors import InvalidError

SHARES: Final = (*range(0, 100, 5), 97, 98, 99, 99.5, 99.9, 99.99, 100)
"""The percentiles of each round, for plots."""

_FORMAT: Final = 1


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One combination, measured once in each round.

    Attributes:
        contender: its name.
        way: the transport and the call.
        generator: of the load: ``native``, ``wire`` or ``python``; or the scenario's own.
        clients: number of clients.
        payload: the name of the observations.
        serdes: its name, if values are encoded.
        backend: of the policy, if there is one.
        rate: open loop: requests per second of all clients together; absent: closed loop.

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
        """Give all fields in one line; it is unique in a run."""
        words = [self.contender, self.way, self.serdes, self.backend, self.payload, self.generator, f"×{self.clients}"]
        return " ".join([*filter(None, words), *([f"{self.rate:g}/s"] if self.rate else [])])


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one round.

    Attributes:
        p50, p90, p99, p999: latencies in µs.
        throughput: decisions per second, of all clients together.
        count: number of decisions.
        spectrum: latencies in µs at the percentiles of `SHARES`.
        client_cpu: µs of CPU per decision, of the clients.
        server_cpu: the same of the server; ``None`` if its process is not known.
        server_rss: bytes of the server's memory after the round; ``None`` likewise.

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
        format: the version of the file's form.
        machine: processor, system and versions.
        regime: ``quiet``, or ``busy`` if all cores were kept awake.
        seconds: of each case in each round.
        cases: with their rounds.
        skipped: the reason by contender that could not run.
        figures: further results of the scenario; the name has the unit.

    """

    format: int = _FORMAT
    machine: dict[str, str]
    regime: str
    seconds: float
    cases: list[Measured]
    skipped: dict[str, str] = {}
    figures: dict[str, float] = {}


def summary(latencies: Sequence[Latencies], rate: float, client_cpu: float) -> Round:
    """Make a round of its clients' latencies in µs.

    Raises:
        InvalidError: there is no latency.

    """
    together = np.concatenate(latencies)
    if not together.size:
        raise InvalidError("no client got an answer; measure for longer, or at a higher rate")
    p50, p90, p99, p999 = np.percentile(together, (50, 90, 99, 99.9)).tolist()
    return Round(
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        throughput=rate,
        count=len(together),
        spectrum=np.percentile(together, SHARES).round(2).tolist(),
        client_cpu=client_cpu,
    )


def timed(call: Callable[[], object], seconds: float = 0.0, *, calls: int = 1, block: int = 1) -> Round:
    """Call repeatedly in this process, and make a round of the latencies.

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
    """Describe the machine."""
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
    """Write the run to a file."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))


def read_json(file: Path) -> Run:
    """Read what `write_json` wrote.

    Raises:
        InvalidError: the file cannot be read, or has another form.

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
    columns = ["regime", *Case.__struct_fields__, "round", *figures]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        for measured in run.cases:
            case = {"regime": run.regime, **asdict(measured.case)}
            writer.writerows({**case, "round": number, **asdict(each)} for number, each in enumerate(measured.rounds))
