"""A worker as the parent sees it: its process, and the line to it."""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from policybridge_server.workers.line import Handler, Line

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from policybridge_server.workers.worker import main; main(sys.argv[2:])"
)


class Member:
    """A worker's process.

    Args:
        index: the worker's number; a process that replaces another one has the same.
        handlers: the handlers of its calls.

    Attributes:
        index: likewise.
        mark: the end of its sessions' ids; each process has its own.
        line: the line to it.
        joined: whether it takes part in changes of the repository.
        ready: whether it serves.
        addresses: its listening addresses.
        policies: the number of its policies.
        error: its own message of a failed start.
        counted: its last numbers.
        loops: whether its loop runs, as its beats show.
        silent: seconds since its last beat, counted while the parent itself ran.
        fault: why the parent has ended it; empty if it has not.

    """

    def __init__(self, index: int, handlers: Mapping[str, Handler]) -> None:
        self.index = index
        self.mark = secrets.token_hex(4)
        self.line = Line(handlers)
        self.joined = False
        self.ready = asyncio.Event()
        self.addresses: list[str] = []
        self.policies = 0
        self.error: Exception | None = None
        self.counted: Any = None
        self.loops = False
        self.silent = 0
        self.fault = ""
        self._process: asyncio.subprocess.Process | None = None

    def __str__(self) -> str:
        return f"worker {self.index} (process {self.pid})"

    @property
    def pid(self) -> int:
        """The number of the process; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    async def run(self, descriptors: Sequence[int]) -> str:
        """Start the process, answer it until it ends, and describe its end.

        Args:
            descriptors: that it gets, with the numbers that they have here.

        """
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [json.dumps(sys.path), str(os.getpid()), str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _PROGRAM,
                *arguments,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *descriptors),
                # Only the parent handles a terminal's signals.
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            )
        await self.line.open(ours)
        serving = asyncio.create_task(self.line.serve())
        # Not by the end of the line: a process that a policy has started may hold it open.
        status = await self._process.wait()
        self.ready.clear()
        self.joined = self.loops = False
        serving.cancel()
        await asyncio.wait({serving})
        return self.fault or _ending(status)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _ending(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
