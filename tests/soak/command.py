"""``python -m tests.soak``: random faults for a long time; then check every acknowledged record."""

import argparse
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil
from rich.console import Console
from rich.table import Table

from policybridge_server.ledger.reader import LedgerReader
from tests.attacks.attacks import ATTACKS
from tests.soak.client import POLICY, SOURCE
from tests.soak.world import Clients, Publisher, Server

_PATH: Final = "/policybridge.v1.PolicyService/Session"
_BETWEEN: Final = 5.0
_SETTLED: Final = 5.0
_MORE_MEMORY: Final = 150e6
_MORE_DESCRIPTORS: Final = 30


def _kill(server: Server, _: Clients, __: random.Random) -> None:
    server.end(signal.SIGKILL)
    server.start()


def _restart(server: Server, _: Clients, __: random.Random) -> None:
    server.end(signal.SIGTERM)
    server.start()


def _pause(server: Server, _: Clients, choices: random.Random) -> None:
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(choices.uniform(0.1, 3.0))
    server.process.send_signal(signal.SIGCONT)


def _kill_client(_: Server, clients: Clients, choices: random.Random) -> None:
    clients.kill(choices.randrange(1000))


def _attack(name: str, server: Server, _: Clients, __: random.Random) -> None:
    ATTACKS[name](server.addresses[0].partition(":")[2], _PATH, 2.0)


Fault = Callable[[Server, Clients, random.Random], None]
FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {"kill -9": _kill, "restart": _restart, "stop for a while": _pause, "kill a client": _kill_client}
    | {name: partial(_attack, name) for name in ATTACKS}
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts; the exit status is 1 if an acknowledged record is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="default: 30")
    parser.add_argument("--clients", type=int, default=4, help="processes that ask (default: 4)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults and of the clients")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pb-soak-") as folder:
        return _Soak(Path(folder), options).run()


class _Soak:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._choices = random.Random(options.seed)
        self._faults: Counter[str] = Counter()
        self._server = Server(folder)
        self._server.start()
        self._clients = Clients(self._server, options.clients, options.seed)
        self._publisher = Publisher(self._server)

    def run(self) -> int:
        try:
            self._publisher.start()
            self._disturb()
            before = _usage(self._server)
            time.sleep(_SETTLED)
        finally:
            self._publisher.stop()
            self._clients.stop()
            time.sleep(_SETTLED)
            after = _usage(self._server)
            self._server.end(signal.SIGTERM)
        console = Console(width=120)
        console.print(self._table())
        broken = [*self._clients.wrong, *self._lost(), *_grown(before, after)]
        if self._publisher.accepted:
            broken.append(f"{self._publisher.accepted} corrupt versions were accepted")
        for line in broken:
            console.print(f"NOT HELD: {line}", highlight=False)
        return 1 if broken else 0

    def _disturb(self) -> None:
        end = time.monotonic() + 60 * self._options.minutes
        while time.monotonic() < end:
            time.sleep(self._choices.uniform(0.0, _BETWEEN))
            name = self._choices.choice(list(FAULTS))
            FAULTS[name](self._server, self._clients, self._choices)
            self._faults[name] += 1

    def _lost(self) -> Iterator[str]:
        marks = {number: _mark(self._server, number) for number in {1, *self._publisher.acknowledged}}
        for number, mark in marks.items():
            if mark is None:
                yield f"version {number} was acknowledged and is not in the repository"
        with LedgerReader(self._server.ledger) as ledger:
            held = {session.id: session for session in ledger.sessions()}
        for said in self._clients.acknowledged:
            found = held.get(said.session)
            if found is None or found.decisions != said.decisions or found.outcome is None or found.lost:
                yield f"the ledger has {found} of the acknowledged {said}"
            if (mark := _mark(self._server, said.version)) != said.mark:
                yield f"{said} was given advice of another artifact than its version's, whose mark is {mark}"

    def _table(self) -> Table:
        table = Table("held", "", title=f"{self._options.minutes:g} minutes, seed {self._options.seed}")
        sessions = self._clients.acknowledged
        rows = {
            "faults": ", ".join(f"{count} × {name}" for name, count in sorted(self._faults.items())),
            "runs of the server": f"{self._server.runs}, the slowest start {self._server.slowest:.1f} s",
            "sessions acknowledged": f"{len(sessions)} with {sum(said.decisions for said in sessions)} decisions",
            "versions acknowledged": f"{len(self._publisher.acknowledged)}",
            "corrupt versions refused": f"{self._publisher.refused}",
            "publications that failed": f"{self._publisher.failed}",
            "sessions that failed": ", ".join(f"{n} × {name}" for name, n in sorted(self._clients.errors.items())),
        }
        for name, value in rows.items():
            table.add_row(name, value)
        return table


def _mark(server: Server, version: int) -> int | None:
    """Give the mark of a version in the repository; ``None`` if there is no such version."""
    file = server.folder / "policies" / POLICY / str(version) / "policy.py"
    before, _, after = SOURCE.partition("{}")
    return int(file.read_text().removeprefix(before).removesuffix(after)) if file.is_file() else None


def _usage(server: Server) -> tuple[int, int]:
    process = psutil.Process(server.process.pid)
    return process.memory_info().rss, process.num_fds()


def _grown(before: tuple[int, int], after: tuple[int, int]) -> Iterator[str]:
    if after[0] - before[0] > _MORE_MEMORY:
        yield f"{(after[0] - before[0]) / 1e6:.0f} MB more without clients than with them"
    if after[1] - before[1] > _MORE_DESCRIPTORS:
        yield f"{after[1] - before[1]} more descriptors without clients than with them"
