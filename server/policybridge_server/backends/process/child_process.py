"""Starting and ending a policy's process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

from policybridge_server.backends.process.messages import Channel

_PROGRAM: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[3]); from {} import start; start(sys.argv[1:3])"
_POLICY: Final = "policybridge_server.backends.process.child"
_GRACE_SECONDS: Final = 1.0
"""Seconds for a process to end after its connection is closed."""


class ChildProcess:
    """A process, and the connection to it. It gets no other descriptor of the server's than standard error.

    Args:
        module: has the function ``start``, which the process runs with its two descriptors.

    Attributes:
        channel: carries requests and replies.

    """

    def __init__(self, module: str = _POLICY) -> None:
        ours, theirs = socket.socketpair()
        # This pipe has no writer. The kernel kills the process when the server's end is closed.
        lifeline, held = os.pipe()
        self._held: int | None = held
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _PROGRAM.format(module),
                    str(theirs.fileno()),
                    str(lifeline),
                    json.dumps(sys.path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline),
                # A group of its own: its children end with it, and a terminal's Ctrl-C does not reach it.
                start_new_session=True,
            )
        except BaseException:
            os.close(held)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self.channel = Channel(ours)

    def end(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        self.kill(_GRACE_SECONDS)

    def kill(self, grace: float = 0.2) -> str:
        """Kill the process and its children; describe its end, if it comes within ``grace`` seconds."""
        self.channel.close()
        before = self._status(time.monotonic() + grace)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._held is not None:
            os.close(self._held)
            self._held = None
        return before

    def _status(self, due: float) -> str:
        # The process stays a zombie until then, so that the kernel cannot reuse the number of its group.
        while (ended := os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            if time.monotonic() > due:
                return "was killed"
            time.sleep(0.005)
        if ended.si_code == os.CLD_EXITED:
            return f"ended with exit status {ended.si_status}"
        return f"was ended by {signal.Signals(ended.si_status).name}"
