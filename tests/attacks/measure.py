"""One attack on one port: what it costs a client beside, and the server's memory."""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final

import msgspec
import psutil

from policybridge_bench.contenders.own import serve_command
from policybridge_bench.processes import module, server
from policybridge_core.errors import PolicyFailedError
from tests.attacks.attacks import ATTACKS

POLICY: Final = """class Policy:
    def evaluate(self, observation, session):
        return observation["x"]
"""
_PATH: Final = "/policybridge.v1.PolicyService/Session"
_FEW_DESCRIPTORS: Final = 256
_BEFORE: Final = 2.0
_AFTER: Final = 3.0
_BESIDE_ENDS: Final = 150.0


class Row(msgspec.Struct):
    """One attack on one port: seconds, and bytes of memory.

    Attributes:
        attack: its name.
        port: ``grpc``, which is ours, or ``grpcio``.
        before: the seconds of each decision of the client beside, before the attack.
        during: those of the decisions that the attack, or the second after it, had a part of.
        connecting: the longest that a new connection waited meanwhile.
        refused: how many new connections were refused or not answered meanwhile.
        recovered: whether a new connection was answered after the attack.
        rss: of the server: before, at most, and some seconds after the attacker has gone.
        failed: why the client beside has no figures.

    """

    attack: str
    port: str
    before: list[float] = []
    during: list[float] = []
    connecting: float = 0.0
    refused: int = 0
    recovered: bool = False
    rss: tuple[int, int, int] = (0, 0, 0)
    failed: str = ""

    def ratio(self, percent: int) -> float:
        """Give the quantile during the attack over that before it."""
        return quantile(self.during, percent) / max(quantile(self.before, percent), 1e-6)


def quantile(values: Sequence[float], percent: int) -> float:
    """Give a quantile; of fewer than two values, NaN."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else float("nan")


def measure(name: str, port: str, seconds: float, python: str = sys.executable) -> Row:
    """Run one attack against a fresh server."""
    row = Row(name, port)
    with (
        tempfile.TemporaryDirectory(prefix="pb-attack-") as scratch,
        _server(Path(scratch), f"--{port}", python, few_descriptors=name == "silent-connections") as (pid, address),
        _beside(address) as beside,
    ):
        time.sleep(_BEFORE)
        memory = Memory(pid)
        memory.start()
        begun = time.monotonic()
        ATTACKS[name](address.partition(":")[2], _PATH, seconds)
        ended = time.monotonic()
        time.sleep(_AFTER)
        memory.stop()
        row.rss = (memory.first, memory.most, memory.last)
        _judge(row, beside, begun, ended)
    return row


def _judge(row: Row, beside: "subprocess.Popen[str]", begun: float, ended: float) -> None:
    try:
        seen = json.loads(beside.communicate(timeout=_BESIDE_ENDS)[0])
    except (subprocess.TimeoutExpired, ValueError):
        row.failed = "the client beside failed, or waited for more than two minutes"
        return
    row.before = [took for at, took in seen["decisions"] if at + took < begun]
    row.during = [took for at, took in seen["decisions"] if at <= ended + 1.0 and at + took >= begun]
    row.connecting = max((took for at, took in seen["connections"] if at >= begun), default=0.0)
    row.refused = sum(at >= begun for at in seen["refused"])
    row.recovered = any(at > ended for at, _ in seen["connections"])


@contextlib.contextmanager
def _server(folder: Path, option: str, python: str, *, few_descriptors: bool) -> Iterator[tuple[int, str]]:
    repository = folder / "policies"
    (repository / "echo" / "1").mkdir(parents=True)
    (repository / "echo" / "policy.toml").write_text('backend = "python"\ninline = true\n')
    (repository / "echo" / "1" / "policy.py").write_text(POLICY)
    command, env = serve_command(python)
    command += ["--repository", str(repository), "--allow-python", option, "127.0.0.1:0"]
    if few_descriptors:
        command = ["prlimit", f"--nofile={_FEW_DESCRIPTORS}", "--", *command]
    with server(command, env=env, log=folder / "log") as started:
        yield started.pid, started.addresses[0]


@contextlib.contextmanager
def _beside(address: str) -> "Iterator[subprocess.Popen[str]]":
    command = module("tests.attacks.beside", address, "echo")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise PolicyFailedError("the client beside could not begin")
        yield process
    finally:
        process.kill()
        process.wait()


class Memory(threading.Thread):
    """Samples the memory of a process until it is told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.first = self.most = self.last = self._now()

    def _now(self) -> int:
        with contextlib.suppress(psutil.Error):
            return int(self._process.memory_info().rss)
        return 0

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.last = self._now()
            self.most = max(self.most, self.last)

    def stop(self) -> None:
        self._over.set()
        self.join()
