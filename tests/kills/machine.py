"""A machine of the kills: it forks servers and publishers, and its clock jumps."""

import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.kills.messages import Publishing, Serving
from tests.kills.processes import Killed, Talker

_DAY: Final = 86400.0
_JUMPS: Final = (-365 * _DAY, -_DAY, -3600.0, -1.0, 0.0, 0.0, 3600.0, _DAY, 365 * _DAY)
"""Offsets of the clock in seconds; each jump draws one."""

_LIBRARIES: Final = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@dataclass(frozen=True)
class Server:
    """A server that listens: its process, and its addresses."""

    process: Killed
    socket: str
    grpc: str

    def workers(self) -> list[int]:
        """Give the numbers of its child processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()] if children.exists() else []


class Machine:
    """Forks processes that have one clock.

    With libfaketime the whole process has the wrong time of day, and without it only its ledger; the uptime is right,
    as it is on a real machine.

    Args:
        folder: for its log and its clock.
        name: of their files.
        stack: ends the machine.
        chance: draws the jumps.
        counts: counts the jumps.

    """

    def __init__(self, folder: Path, name: str, stack: ExitStack, chance: random.Random, counts: Counter[str]) -> None:
        self._folder, self._name = folder, name
        self._stack, self._chance, self._counts = stack, chance, counts
        self._offset = folder / f"{name}.clock"
        self._offset.write_text("+0")
        faked = {
            "LD_PRELOAD": str(_LIBRARIES[-1]) if _LIBRARIES else "",
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self._nursery = Talker("nursery", folder / f"{name}.log", faked if _LIBRARIES else {})
        stack.callback(self._nursery.close)

    def jump(self) -> None:
        """Set the clock."""
        new = self._folder / f"{self._name}.clock-new"
        new.write_text(f"{self._chance.choice(_JUMPS):+.0f}")
        new.replace(self._offset)
        self._counts["real clock" if _LIBRARIES else "ledger's clock"] += 1

    def serve(self, config: dict[str, Any]) -> Server:
        """Start a server, and wait until it is ready."""
        self.jump()
        process = self._forked(Serving(config, "" if _LIBRARIES else str(self._offset)))
        addresses = process.wait_ready()
        socket, grpc = (next(each for each in addresses if each.startswith(kind)) for kind in ("socket:", "grpc:"))
        return Server(process, socket, grpc)

    def publish(self, grpc: str, policy: str, files: Path) -> Killed:
        """Start a publisher."""
        scratch = self._folder / f"{self._name}-scratch"
        return self._forked(Publishing(grpc, policy, str(files), str(scratch)))

    def _forked(self, task: Serving | Publishing) -> Killed:
        process = Killed(self._nursery, task, self._folder / f"{self._name}-fifo")
        self._stack.callback(process.close)
        return process
