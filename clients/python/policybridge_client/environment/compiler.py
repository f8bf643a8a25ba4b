"""A compiler that serves gRPC while it compiles: starting it, finding its port, ending it and cleaning up."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_client.llvm.process import KEPT_OUTPUT, Watchdog
from policybridge_core.errors import DeadlineError, InvalidError, UnavailableError

_PAUSE: Final = 0.01
_DYING: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """How the compiler is started and ended.

    Attributes:
        command: the program and its arguments. ``{port}`` is replaced by a free port of 127.0.0.1, ``{folder}`` by an
            empty folder of the episode, and ``{name}`` by the option ``name`` of `CompilerEnvironment.reset`.
        port_pattern: for a compiler that chooses the port itself: a regular expression for the line of its output that
            names the port; the first group is the port.
        farewell: text for the compiler's standard input that ends the episode. The compiler then stops its server and
            continues to compile; ML-Compiler-Bridge waits for this text.
        start_timeout: limit from the start to the first reply, in seconds.
        step_timeout: limit of each later reply, in seconds.
        end_timeout: limit from the farewell to the exit, in seconds.
        environment: the compiler's environment variables; ``None`` passes on those of this process.

    """

    command: Sequence[str]
    port_pattern: str | None = None
    farewell: str = "Terminate\n"
    start_timeout: float = 30.0
    step_timeout: float = 30.0
    end_timeout: float = 120.0
    environment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        given = any("{port}" in word for word in self.command)
        if given == (self.port_pattern is not None):
            raise InvalidError("give either {port} in the command, or a port_pattern for the output; not both")


class RunningCompiler:
    """A compiler process in its own process group, and the folder of its episode.

    Args:
        compiler: how the compiler is started.
        options: the values for the placeholders in the command.

    Raises:
        UnavailableError: the compiler cannot be started.

    """

    def __init__(self, compiler: Compiler, options: Mapping[str, object]) -> None:
        self._compiler = compiler
        self._deadline = time.monotonic() + compiler.start_timeout
        self._held = tempfile.TemporaryDirectory(prefix="policybridge-")
        self.folder = Path(self._held.name)
        self._output = self.folder / "output.txt"
        self._port = None if compiler.port_pattern else _free_port()
        words = {**options, "port": self._port, "folder": self.folder}
        command = [_filled(word, words) for word in compiler.command]
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=None if compiler.environment is None else dict(compiler.environment),
                    start_new_session=True,
                )
        except OSError as error:
            self._held.cleanup()
            raise UnavailableError(f"cannot start {command[0]}: {error.strerror}") from error
        # Clean up even if the environment is never closed: a compiler would wait for its farewell for ever. If a signal
        # ends this process, the watchdog cleans up.
        watchdog = _watchdog(self._process, self.folder)
        self._clean = weakref.finalize(self, _clean_up, self._process, self._held, watchdog)

    def port(self) -> int:
        """Return the port, after waiting for the line that names it.

        Raises:
            UnavailableError: the compiler ended before that line.
            DeadlineError: the line did not come in time.

        """
        while self._port is None:
            ended = self.status is not None
            match = re.search(self._compiler.port_pattern or "", self.output(), re.MULTILINE)
            if match:
                self._port = int(match[1])
            elif ended:
                raise self.died()
            elif self.start_left() <= 0:
                raise DeadlineError(f"the compiler printed no port within {self._compiler.start_timeout:g} s")
            else:
                time.sleep(_PAUSE)
        return self._port

    def start_left(self) -> float:
        """Return the seconds until the first reply is due."""
        return self._deadline - time.monotonic()

    @property
    def status(self) -> int | None:
        """The exit status as in `subprocess`; ``None`` while the compiler runs."""
        # The process is reaped only by close(): until then no other process or group can get its id.
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def output(self) -> str:
        """Return the output so far."""
        return self._output.read_text(errors="replace")

    def died(self) -> UnavailableError:
        """Make the error for a compiler that ended too early."""
        self._wait(_DYING)
        return UnavailableError(f"the compiler ended with status {self.status}: {self.output()[-KEPT_OUTPUT:].strip()}")

    def finish(self) -> int:
        """Let the compiler finish; return its exit status.

        Raises:
            DeadlineError: the compiler does not end in time.

        """
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                stdin.write(self._compiler.farewell.encode())
                stdin.close()
        self._wait(self._compiler.end_timeout)
        status = self.status
        if status is None:
            raise DeadlineError(f"the compiler did not end within {self._compiler.end_timeout:g} s")
        return status

    def _wait(self, seconds: float) -> None:
        with open(os.pidfd_open(self._process.pid), "rb") as process:  # noqa: PTH123
            select.select([process], [], [], seconds)

    def close(self) -> None:
        """Kill the remaining processes and remove the folder. A second call does nothing."""
        self._clean()


def _watchdog(process: "subprocess.Popen[bytes]", folder: Path) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    with contextlib.suppress(OSError):
        stack.enter_context(Watchdog(process.pid, folder))
    return stack


def _clean_up(
    process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]", watchdog: contextlib.ExitStack
) -> None:
    # Kill the group, which outlives its leader: processes that the compiler started must end too.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    folder.cleanup()
    watchdog.close()


def _filled(word: str, values: Mapping[str, object]) -> str:
    # Not str.format: arguments of compilers may contain other braces.
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
