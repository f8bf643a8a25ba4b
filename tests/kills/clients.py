"""The clients of the kills, and what processes tell."""

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.kills.machine import Server
from tests.kills.messages import Acknowledged, Asking, Rest, Said
from tests.kills.processes import Talker, said

_PATIENCE: Final = 20.0
_LOOK: Final = 0.01
"""Seconds: to wait for messages, and between two looks at them."""


@dataclass
class Heard:
    """The messages of a process, by a thread that reads along."""

    said: list[Said] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def listen(self, lines: Iterable[bytes]) -> None:
        """Take the messages in the lines."""
        thread = threading.Thread(target=lambda: self.said.extend(said(lines)))
        thread.start()
        self.threads.append(thread)

    def wait(self, more: int) -> None:
        """Wait for a number of further messages, at most for some seconds."""
        count, end = len(self.said) + more, time.monotonic() + _PATIENCE
        while len(self.said) < count and time.monotonic() < end:
            time.sleep(_LOOK)

    def marks(self) -> set[str]:
        """Give the ends of the sessions' ids so far: each process of a server has its own."""
        return {each.session[-8:] for each in self.said[:] if isinstance(each, Acknowledged)}

    def all(self) -> list[Said]:
        """Wait for the last message, and give them all."""
        for thread in self.threads:
            thread.join()
        return self.said


class Clients:
    """A process that asks a server.

    Args:
        log: a file for its standard error.
        stack: ends it.

    """

    def __init__(self, log: Path, stack: ExitStack) -> None:
        self._talker = Talker("asker", log)
        stack.callback(self._talker.close)

    def ask(self, server: Server) -> Heard:
        """Begin to ask."""
        self._talker.begin(Asking(server.socket, server.grpc))
        heard = Heard()
        heard.listen(self._talker.lines())
        return heard

    def rest(self, heard: Heard) -> list[Said]:
        """End all sessions; give all messages since `ask`."""
        self._talker.begin(Rest())
        return heard.all()
