"""What the harness adds: a bare socket asked by its clients, and by a loop that does nothing else."""

import argparse
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from policybridge_bench import native
from policybridge_bench.busy import regime
from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.echoes import PythonSocketEcho
from policybridge_bench.drive import command, drive
from policybridge_bench.load import Load
from policybridge_bench.options import words
from policybridge_bench.payloads import payload
from policybridge_bench.requests import native as native_load
from policybridge_core.errors import PreconditionError

_REPLY = 9


def run(arguments: argparse.Namespace) -> int:
    """Measure each in turn, in every round."""
    with TemporaryDirectory(prefix="pb-") as folder, regime(busy=arguments.busy):
        setting = Setting(Path(folder), arguments.cache, ["inliner"])
        with PythonSocketEcho().serve(setting) as serving:
            load = Load(
                kind="wire",
                address=serving.routes[0].load.address,
                seconds=arguments.seconds,
                warm_up=arguments.warm_up,
            )
            commands = {"harness, client in Python": command(load), **_native(load, Path(folder), arguments)}
            seen: dict[str, list[float]] = {}
            for _ in range(arguments.rounds):
                seen.setdefault("bare loop", []).append(_bare(load))
                for name, asking in commands.items():
                    seen.setdefault(name, []).append(drive(asking, 1).p50)
    _print(seen)
    return 0


def _native(load: Load, folder: Path, arguments: argparse.Namespace) -> dict[str, Sequence[str]]:
    if "native" not in words(arguments.generators or "native"):
        return {}
    try:
        client = native.program("policybridge-load", arguments.cache)
    except PreconditionError as error:
        print(f"without the native client: {error}")
        return {}
    return {"harness, native client": command(native_load(load, folder), client)}


def _bare(load: Load) -> float:
    """Give the p50 of a loop that sends and receives, in µs."""
    message = payload(load.payload).observations()[0].tobytes()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(load.address.removeprefix("socket:"))
        times: list[float] = []
        end = time.perf_counter() + load.seconds
        while (started := time.perf_counter()) < end:
            connection.sendall(message)
            connection.recv(_REPLY)
            times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1e6


def _print(seen: dict[str, list[float]]) -> None:
    bare = seen["bare loop"]
    for name, values in seen.items():
        difference = median(value - base for value, base in zip(values, bare, strict=True))
        print(f"{name:28} p50 {median(values):7.1f} µs   beyond the bare loop {difference:+6.1f} µs")
