"""``python -m tests.slots``: compiles that only sleep, on a Ray cluster of this machine."""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from policybridge_train.compiling.job import SharedModule
from policybridge_train.compiling.module import Module
from policybridge_train.farms.contract import FARMS, Farm, FarmOptions
from policybridge_train.processes.threads import for_each
from tests.slots.job import Sleeping

_MODULES: Final = 50
_BYTES: Final = 60_000
"""Of a module; the corpus of 854 modules in docs/corpora.md has this mean."""


@dataclass(frozen=True)
class Curve:
    """What one number of slots came to.

    Attributes:
        slots: compilers at a time.
        compiles: that were done.
        rate: of them in a second of wall time, from the first hand-out to the last result.
        coordinator_ms: processor time of the coordinator for each compile, in milliseconds.
        others_ms: the same of all other processes of the cluster, those of the compilers among them.
        before_mib: memory of the coordinator before (RSS).
        after_mib: and after.
        workers: processes that ran compilers.

    """

    slots: int
    compiles: int
    rate: float
    coordinator_ms: float
    others_ms: float
    before_mib: float
    after_mib: float
    workers: int


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.slots", description=__doc__)
    parser.add_argument("--slots", default="25,50,100,200", help="compilers at a time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="compiles of each slot (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="that a compile takes (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    asked = parser.parse_args(words)
    curve = []
    print("slots  compiles/s  of ideal  coordinator ms  others ms  MiB before  after  workers")
    for slots in map(int, asked.slots.split(",")):
        one = measure(slots, asked.rounds, asked.seconds)
        ideal = one.rate * asked.seconds / slots
        print(
            f"{slots:5}  {one.rate:10.1f}  {ideal:8.0%}  {one.coordinator_ms:14.2f}  {one.others_ms:9.2f}"
            f"  {one.before_mib:10.0f}  {one.after_mib:5.0f}  {one.workers:7}",
            flush=True,
        )
        curve.append(one)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(each) for each in curve], indent=1) + "\n")
    return 0


def measure(slots: int, rounds: int, seconds: float) -> Curve:
    """Measure one number of slots, on a cluster of its own."""
    made = FARMS.load("ray")
    with tempfile.TemporaryDirectory(prefix="policybridge-bench-") as folder:
        farm: Farm
        with made(FarmOptions("local", slots, memory=1)) as farm:  # type: ignore[operator]
            jobs = list(_jobs(Path(folder), farm, slots * rounds, seconds))
            # Every process of the cluster has started, and has each module, when this is done.
            for _ in for_each(farm.do, jobs[: 2 * slots], slots, farm.running):
                pass
            own, began = psutil.Process(), time.monotonic()
            before, others = own.memory_info().rss, _others(own)
            used = time.process_time()
            done = sum(1 for _ in for_each(farm.do, jobs, slots, farm.running))
            took, used = time.monotonic() - began, time.process_time() - used
            spent, workers = _others(own) - others, _workers(own)
            after = own.memory_info().rss
    per = 1000 / done
    return Curve(slots, done, done / took, used * per, spent * per, before / 2**20, after / 2**20, workers)


def _jobs(folder: Path, farm: Farm, count: int, seconds: float) -> Iterator[Sleeping]:
    modules = []
    for number in range(_MODULES):
        module = Module(f"{number}", folder)
        module.bitcode.write_bytes(random.Random(number).randbytes(_BYTES))
        modules.append(SharedModule.of(module, farm))
    for number in range(count):
        yield Sleeping(modules[number % _MODULES], seconds)


def _others(own: psutil.Process) -> float:
    """Give the processor seconds of all processes that this one has started, and of theirs that have ended."""
    total = 0.0
    for child in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:4])
    return total


def _workers(own: psutil.Process) -> int:
    """Count the cluster's processes for compilations; Ray ends idle ones at any time, and those do not count."""
    count = 0
    for child in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            count += "Compilers" in " ".join(child.cmdline())
    return count
