"""A machine of the kills: it forks servers and publishers, and its clock jumps."""

import random
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.kills.messages import Publishing, Serving
from tests.kills.processes import Killed, Talker

_DAY: Final = 86400
_JUMPS: Final = (-2 * 365 * _DAY, -365 * _DAY, -_DAY, -3600, -1, 0, 0, 3600, _DAY, 365 * _DAY, 2 * 365 * _DAY)
"""Offsets of the clock in seconds; each jump draws one."""

_SOURCE: Final = Path(__file__).with_name("clock.c")


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

    Where there is a C compiler, the whole process has the wrong time of day, and elsewhere only its ledger; the uptime
    is right, as it is on a real machine.

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
        self._offset.write_bytes(bytes(8))
        library = _built(folder)
        self._is_real = library is not None
        wrong = {"LD_PRELOAD": str(library), "KILLS_CLOCK": str(self._offset)} if library else {}
        self._nursery = Talker("nursery", folder / f"{name}.log", wrong)
        stack.callback(self._nursery.close)

    def jump(self) -> None:
        """Set the clock."""
        with self._offset.open("r+b") as file:
            file.write(self._chance.choice(_JUMPS).to_bytes(8, sys.byteorder, signed=True))
        self._counts["real clock" if self._is_real else "ledger's clock"] += 1

    def serve(self, config: dict[str, Any]) -> Server:
        """Start a server, and wait until it is ready."""
        self.jump()
        process = self._forked(Serving(config, "" if self._is_real else str(self._offset)))
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


def _built(folder: Path) -> Path | None:
    """Compile the clock; ``None`` without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "clock.so"
    words = [compiler, "-std=c11", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(words, check=True)
    return library
