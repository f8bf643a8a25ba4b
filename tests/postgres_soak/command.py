"""``python -m tests.postgres_soak``: stop and kill a database under two servers; then check every record."""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from policybridge_bench import processes
from policybridge_bench.network import write_network
from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.reader import LedgerReader
from tests.kills.checks import differences, not_ended
from tests.kills.messages import Acknowledged
from tests.postgres_soak.asker import Said, observed
from tests.postgres_soak.cluster import Postgres, running_postgres

_SERVERS: Final = 2
_PROCESSES: Final = 4
_SECONDS: Final = 120.0
_MARGIN: Final = 0.5
"""Seconds around a stop and a start whose decisions count neither as before nor as after."""


@dataclass
class _Told:
    """The messages of the askers."""

    at: list[float] = field(default_factory=list)
    nanoseconds: list[int] = field(default_factory=list)
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def take(self, said: Said) -> None:
        self.at += said.at
        self.nanoseconds += said.nanoseconds
        if said.acknowledged is not None:
            self.acknowledged[said.acknowledged.session] = said.acknowledged
        else:
            self.refused.append(said.refused)


@dataclass
class _Away:
    """How the database ended, and from when to when it was away and until it served again, seconds since 1970."""

    how: str
    begun: float
    ended: float
    back: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts and the times of decisions; the exit status is 1 if an acknowledged record is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.postgres_soak", description=__doc__)
    parser.add_argument("--sessions", type=int, default=16, help="at a time, over all servers (default: 16)")
    parser.add_argument("--stopped", type=float, default=30.0, help="seconds for which it is stopped (default: 30)")
    parser.add_argument("--kills", type=int, default=10, help="by kill -9 (default: 10)")
    parser.add_argument("--away", type=float, default=3.0, help="seconds after each kill (default: 3)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pb-postgres-") as name, running_postgres() as postgres:
        return _Soak(Path(name), postgres, options).run()


class _Soak:
    def __init__(self, folder: Path, postgres: Postgres, options: argparse.Namespace) -> None:
        self._folder = folder
        self._postgres = postgres
        self._options = options
        self._url = postgres.create()
        self._told = _Told()
        self._away: list[_Away] = []

    def run(self) -> int:
        write_network(self._folder / "policies", "network")
        with self._servers() as addresses, self._askers(addresses):
            self._wait_for_sessions()
            time.sleep(self._options.stopped / 2)
            self._lose("stopped", signal.SIGINT, self._options.stopped)
            time.sleep(self._options.stopped / 2)
            for _ in range(self._options.kills):
                self._lose("killed", signal.SIGKILL, self._options.away)
                time.sleep(self._options.away)
        faults = self._faults()
        self._report(faults)
        return 1 if faults else 0

    def _wait_for_sessions(self) -> None:
        end = time.monotonic() + _SECONDS
        while len(self._told.acknowledged) < 2 * self._options.sessions:
            if time.monotonic() > end:
                raise UnavailableError(f"the sessions do not begin: {self._told.refused[:3]}")
            time.sleep(0.1)

    @contextmanager
    def _servers(self) -> Iterator[list[str]]:
        """Run the servers; they end in an orderly way, and so send what waits."""
        with ExitStack() as stack:
            addresses: list[str] = []
            for number in range(_SERVERS):
                words = [sys.executable, "-m", "policybridge_client.cli", "serve", "--grpc", "127.0.0.1:0"]
                words += [
                    "--socket",
                    str(self._folder / f"{number}.sock"),
                    "--repository",
                    str(self._folder / "policies"),
                ]
                words += ["--ledger", self._url, "--ledger-spool", str(self._folder / "spool")]
                log = self._folder / f"server{number}.log"
                addresses += stack.enter_context(processes.server(words, log=log)).addresses
            yield addresses

    @contextmanager
    def _askers(self, addresses: Sequence[str]) -> Iterator[None]:
        given = [addresses[number % len(addresses)] for number in range(self._options.sessions)]
        with ExitStack() as stack:
            for number in range(min(_PROCESSES, len(given))):
                stack.enter_context(self._asker(given[number::_PROCESSES]))
            yield

    @contextmanager
    def _asker(self, addresses: Sequence[str]) -> Iterator[None]:
        words = [sys.executable, "-m", "tests.postgres_soak.asker", *addresses]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            reading = threading.Thread(target=self._read, args=(process,))
            reading.start()
            try:
                yield
            finally:
                process.kill()
                reading.join()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            if line.endswith(b"\n"):
                self._told.take(msgspec.json.decode(line, type=Said))

    def _lose(self, how: str, number: signal.Signals, seconds: float) -> None:
        begun = time.time()
        self._postgres.stop(number)
        time.sleep(seconds)
        ended = time.time()
        self._postgres.start()
        self._away.append(_Away(how, begun, ended, time.time()))

    def _faults(self) -> list[str]:
        faults: list[str] = []
        with LedgerReader(self._url) as reader:
            found = {session.id: session for session in reader.sessions()}
            twice = sum(1 for _ in reader.sessions()) - len(found)
            faults += [f"{twice} sessions are there twice"] if twice else []
            for key, told in self._told.acknowledged.items():
                if key not in found:
                    faults.append(f"session {key} with {told.count} acknowledged decisions is lost")
                else:
                    faults += differences(reader, found[key], told, observed(told.seed))
                    if told.ended and not_ended(found[key]):
                        faults.append(f"session {key} ended and is told as not")
        return faults

    def _report(self, faults: Sequence[str]) -> None:
        console, told = Console(), self._told
        decisions = sum(each.count for each in told.acknowledged.values())
        console.print(
            f"{len(told.acknowledged)} sessions of {_SERVERS} servers, {decisions} acknowledged decisions, "
            f"{sum(each.ended for each in told.acknowledged.values())} acknowledged ends; {len(told.refused)} refused"
        )
        for refused in sorted(set(told.refused))[:3]:
            console.print(f"refused: {refused}")
        console.print(self._times())
        for fault in faults[:20]:
            console.print(fault)
        console.print(f"{len(faults)} lost or damaged")

    def _times(self) -> Table:
        """Compare the decisions while the database is away with those of as many seconds before and after that.

        All else on the machine changes meanwhile; neighbours have most of it in common.
        """
        table = Table(
            "the database is", "times", "seconds", "decisions", "p50 µs", "p50 µs beside", "ratio, in the middle"
        )
        for how in dict.fromkeys(each.how for each in self._away):
            parts = [each for each in self._away if each.how == how]
            pairs = [(self._took(each, beside=False), self._took(each, beside=True)) for each in parts]
            ratios = [np.median(away) / np.median(beside) for away, beside in pairs if len(away) and len(beside)]
            away, beside = (np.concatenate(column) for column in zip(*pairs, strict=True))
            seconds = sum(each.ended - each.begun for each in parts)
            figures = f"{np.median(away):.0f}", f"{np.median(beside):.0f}", f"{np.median(ratios):.2f}"
            table.add_row(how, str(len(parts)), f"{seconds:.0f}", str(len(away)), *figures)
        return table

    def _took(self, away: _Away, *, beside: bool) -> npt.NDArray[np.float64]:
        """Give the microseconds of the decisions while it was away, or in half as many seconds on each side."""
        at, took = np.array(self._told.at), np.array(self._told.nanoseconds) / 1e3
        if not beside:
            return took[(at > away.begun + _MARGIN) & (at < away.ended)]
        half = (away.ended - away.begun) / 2
        before = (at > away.begun - half) & (at < away.begun)
        return took[before | ((at > away.back + _MARGIN) & (at < away.back + _MARGIN + half))]
