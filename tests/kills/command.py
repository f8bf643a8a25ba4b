"""``python -m tests.kills``: kill −9 a server with a ledger, and its publishers, at random moments under full load."""

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_bench.network import write_network
from tests.kills.checks import Figures, LedgerCheck, RepositoryCheck
from tests.kills.messages import Asking, Publishing, Said, Serving
from tests.kills.processes import Killed, Talker, said

_ASKERS: Final = 2
_PUBLISHED: Final = "published"
_KEEP: Final = 5
_MOST_SAID: Final = 300
"""Messages of the clients after which a server is killed, at most."""

_MOST_PUBLISHED: Final = 16
"""Messages of the publisher that are waited for, at most."""

_PATIENCE: Final = 20.0
_LOOK: Final = 0.01
"""Seconds: to wait for those messages, and between two looks at them."""

_MOST_BYTES: Final = 2 << 20
_MOST_AGE: Final = 86400.0
_DAY: Final = 86400.0
_JUMPS: Final = (-365 * _DAY, -_DAY, -3600.0, -1.0, 0.0, 0.0, 3600.0, _DAY, 365 * _DAY)
"""Offsets of the server's clock in seconds; each kill draws one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill ``--kills`` processes, check after each, and print the totals; 1 if anything acknowledged was lost.

    Raises:
        PolicyFailedError: a server did not start again after a kill.

    """
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of processes to kill (default: 20)")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="pb-") as name, contextlib.ExitStack() as stack:
        killing = _Killing(Path(name), stack)
        while killing.kills < options.kills:
            killing.round()
            if killing.rounds % 10 == 0:
                sys.stderr.write(f"{killing.kills} kills, {len(killing.figures.faults)} faults\n")
        killing.finish()
        return _print(killing)


@dataclass
class _Heard:
    """What processes said, by threads that read along."""

    said: list[Said] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def listen(self, lines: Iterable[bytes]) -> None:
        thread = threading.Thread(target=lambda: self.said.extend(said(lines)))
        thread.start()
        self.threads.append(thread)

    def wait(self, count: int) -> None:
        """Wait for a number of messages, at most for some seconds."""
        end = time.monotonic() + _PATIENCE
        while len(self.said) < count and time.monotonic() < end:
            time.sleep(_LOOK)

    def all(self) -> list[Said]:
        for thread in self.threads:
            thread.join()
        return self.said


class _Killing:
    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.figures = Figures()
        self.rounds = self.servers = self.publishers = 0
        self._folder = folder
        self._stack = stack
        self._random = random.Random(time.time())
        self._repository = folder / "policies"
        for policy in ("network", _PUBLISHED):
            write_network(self._repository, policy)
        self._offset = folder / "offset"
        self._ledger = LedgerCheck(folder / "ledger.db", _MOST_BYTES, self.figures)
        self._versions = RepositoryCheck(self._repository, _PUBLISHED, _KEEP, self.figures)
        self._askers = [self._talker("asker") for _ in range(_ASKERS)]
        self._nursery = self._talker("nursery")
        self._published: list[Said] = []

    @property
    def kills(self) -> int:
        return self.servers + self.publishers

    def _talker(self, module: str) -> Talker:
        talker = Talker(module, self._folder / f"{module}.log")
        self._stack.callback(talker.close)
        return talker

    def _forked(self, task: Serving | Publishing) -> Killed:
        return Killed(self._nursery, task, self._folder / f"fifo-{type(task).__name__}")

    def _serve(self, stack: contextlib.ExitStack) -> tuple[Killed, str, str]:
        self._jump()
        config = {
            "repository": [str(self._repository)],
            "socket": [str(self._folder / "s")],
            "grpc": ["127.0.0.1:0"],
            "allow_publish": True,
            "keep_versions": _KEEP,
            "ledger": str(self._folder / "ledger.db"),
            "ledger_max_bytes": _MOST_BYTES,
            "ledger_max_age": _MOST_AGE,
        }
        server = self._forked(Serving(config, str(self._offset)))
        stack.callback(server.close)
        addresses = server.wait_ready()
        grpc, socket = (next(each for each in addresses if each.startswith(kind)) for kind in ("grpc:", "socket:"))
        self._versions.check(grpc, self._published)
        self._published = []
        return server, grpc, socket

    def _jump(self) -> None:
        new = self._folder / "offset-new"
        new.write_text(str(self._random.choice(_JUMPS)))
        new.replace(self._offset)

    def round(self) -> None:
        """Serve, ask and publish; kill the publisher and the server; check the ledger."""
        self.rounds += 1
        with contextlib.ExitStack() as stack:
            server, grpc, socket = self._serve(stack)
            asked, published = _Heard(), _Heard()
            for asker in self._askers:
                asker.begin(Asking(socket, grpc))
                asked.listen(asker.lines())
            scratch, files = str(self._folder / "scratch"), str(self._repository / "network" / "1")
            publisher = self._forked(Publishing(grpc, _PUBLISHED, files, scratch))
            stack.callback(publisher.close)
            published.listen(publisher.output)
            killed = self._kill(server, publisher, asked, published)
            self._published = published.all()
            self._ledger.check(asked.all(), killed)

    def _kill(self, server: Killed, publisher: Killed, asked: _Heard, published: _Heard) -> float:
        """Kill both at random moments, in any order, while the clock jumps; give the moment of the server's end."""
        first, second = sorted(self._random.randrange(_MOST_SAID) for _ in range(2))
        asked.wait(first)
        # The first publication of a server takes longer than the others.
        published.wait(self._random.randrange(_MOST_PUBLISHED))
        self._jump()
        early = self._random.random() < 0.5
        if early:
            self.publishers += publisher.end()
        asked.wait(second)
        self._jump()
        time.sleep(self._random.uniform(0, _LOOK))
        killed = time.monotonic()
        self.servers += server.end()
        if not early:
            self.publishers += publisher.end()
        return killed

    def finish(self) -> None:
        """Serve once more, end that server as an operator does, and check all that is kept."""
        with contextlib.ExitStack() as stack:
            server, *_ = self._serve(stack)
            server.end(signal.SIGTERM)
        self._ledger.check_all()


def _print(killing: _Killing) -> int:
    figures = killing.figures
    print(f"killed: {killing.servers} servers, {killing.publishers} publishers")
    print(f"acknowledged decisions: {figures.decisions}, of them dropped in their turn by retention: {figures.dropped}")
    print(f"acknowledged ends of sessions: {figures.ends}; acknowledged versions: {figures.published}")
    print(f"acknowledged changes of latest, by publications, roll-outs and ways back: {figures.named}")
    print(f"decisions that nobody acknowledged and that were missing 2 s later, at most: {figures.late}")
    print(f"lost or damaged: {len(figures.faults)}")
    for fault in figures.faults[:20]:
        print(f"  {fault}")
    return 1 if figures.faults else 0
