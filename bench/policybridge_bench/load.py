"""The load of one client and its report: the same for the clients in Python and the native ones.

A client is a process. It connects, warms up, prints ``ready``, waits for a line, and asks. Then it prints a `Report` as
one line of JSON, and after it all latencies in µs as float32.
"""

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

WARM_UP_ASKS: Final = 200
_PR_SET_TIMERSLACK: Final = 29

Latencies = npt.NDArray[np.float32]
"""In µs, shape [n], in the order of the requests."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load that one client makes.

    Attributes:
        kind: the kind of the client; see the ``program`` and tests/peers.
        address: of the server, in the form that the kind takes.
        method: the gRPC method, if the kind calls one: ``/package.Service/Method``.
        policy: name of the policy.
        payload: name of the observations in `PAYLOADS`.
        serdes: the name of the SerDes.
        seconds: duration of the measurement.
        warm_up: seconds of requests that are not measured; at least `WARM_UP_ASKS` requests, unless they take a second.
        rate: open loop: requests per second. Each is due at a fixed time and its latency counts from then, also if the
            answer before it came late (no coordinated omission). Absent: closed loop, one request after another.
        file: messages encoded beforehand; the native clients need it.
        program: the module of the clients in Python.

    """

    kind: str
    address: str
    method: str = ""
    policy: str = ""
    payload: str = "inliner"
    serdes: str = "bitstream"
    seconds: float = 1.0
    warm_up: float = 0.2
    rate: float | None = None
    file: str = ""
    program: str = "policybridge_bench.clients"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of one client.

    Attributes:
        count: number of answers.
        seconds: from the first request to the last answer.
        cpu: the client's CPU, in seconds.
        more: added by a client of another program.

    """

    count: int
    seconds: float
    cpu: float
    more: msgspec.Raw = msgspec.Raw(b"null")


def run_load(ask: Callable[[int], None], load: Load) -> tuple[Report, Latencies]:
    """Make the load with ``ask``, which takes the number of the observation."""
    _warm_up(ask, load.warm_up)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    before, started = time.process_time(), time.perf_counter()
    latencies = _closed(ask, load.seconds) if load.rate is None else _open(ask, load.seconds, load.rate)
    seconds, cpu = time.perf_counter() - started, time.process_time() - before
    return Report(count=len(latencies), seconds=seconds, cpu=cpu), np.array(latencies, np.float32)


def _warm_up(ask: Callable[[int], None], seconds: float) -> None:
    number, clock = 0, time.perf_counter
    started = clock()
    while clock() - started < seconds or (number < WARM_UP_ASKS and clock() - started < 1):
        ask(number)
        number += 1


def _closed(ask: Callable[[int], None], seconds: float) -> list[float]:
    latencies: list[float] = []
    number, clock = 0, time.perf_counter
    end = clock() + seconds
    while (started := clock()) < end:
        ask(number)
        latencies.append((clock() - started) * 1e6)
        number += 1
    return latencies


def _open(ask: Callable[[int], None], seconds: float, rate: float) -> list[float]:
    # By default the kernel wakes a sleeper up to 50 µs late, as long as an answer takes.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    latencies: list[float] = []
    clock = time.perf_counter
    started = clock()
    for number in range(int(seconds * rate)):
        due = started + number / rate
        wait = due - clock()
        if wait > 0:
            time.sleep(wait)
        ask(number)
        latencies.append((clock() - due) * 1e6)
    return latencies


def tell(report: Report, latencies: Latencies) -> None:
    """Print the report."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n" + latencies.tobytes())
    sys.stdout.buffer.flush()


def read_report(output: bytes) -> tuple[Report, Latencies]:
    """Read a client's output after ``ready``."""
    line, _, latencies = output.partition(b"\n")
    return msgspec.json.decode(line, type=Report), np.frombuffer(latencies, np.float32)
