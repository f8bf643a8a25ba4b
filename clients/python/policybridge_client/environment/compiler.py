"""A compiler that serves gRPC while it compiles: started, found, ended, and nothing of it left over."""

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

from policybridge_core.errors import DeadlineError, InvalidError, UnavailableError

_PAUSE: Final = 0.01
_DYING: Final = 1.0
_SHOWN: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """How the compiler is started and ended.

    Attributes:
        command: its words. ``{port}`` stands for a free port of 127.0.0.1, ``{folder}`` for an empty folder of the
            episode's own, and ``{name}`` for any option that `CompilerEnvironment.reset` was given.
        port_pattern: where the compiler chooses the port itself, a regular expression for the line of its output that
            tells; its first group is the port.
        farewell: what ends the episode on the compiler's standard input, so that it shuts its server down and compiles
            on; ML-Compiler-Bridge waits for this word.
        start_timeout: seconds from its start to its first answer.
        step_timeout: seconds for each answer.
        end_timeout: seconds from the farewell to its exit.
        environment: its environment variables; absent: ours.

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
            raise InvalidError(
                "a compiler is either given its {port} in the command, or has a port_pattern that finds it"
            )


class RunningCompiler:
    """A process, in a group of its own, and the folder of its episode.

    Args:
        compiler: how it is started.
        options: for the command's words.

    Raises:
        UnavailableError: it cannot be started.

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
        # Also where the environment is never closed: a compiler that waits for its farewell would wait for ever.
        self._clean = weakref.finalize(self, _clean_up, self._process, self._held)

    def port(self) -> int:
        """Give the port; waits for the line that tells it.

        Raises:
            UnavailableError: the compiler ended before.
            DeadlineError: no such line came in time.

        """
        while self._port is None:
            ended = self.status is not None
            found = re.search(self._compiler.port_pattern or "", self.output(), re.MULTILINE)
            if found:
                self._port = int(found[1])
            elif ended:
                raise self.died()
            elif self.start_left() <= 0:
                raise DeadlineError(f"the compiler told no port within {self._compiler.start_timeout:g} s")
            else:
                time.sleep(_PAUSE)
        return self._port

    def start_left(self) -> float:
        """Give the seconds that are left until its first answer is due."""
        return self._deadline - time.monotonic()

    @property
    def status(self) -> int | None:
        """The exit status, as `subprocess` gives it; ``None`` while it runs."""
        # Not reaped before it is closed, so that nobody else can have its number, and its group, until then.
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def output(self) -> str:
        """Give what it has written so far."""
        return self._output.read_text(errors="replace")

    def died(self) -> UnavailableError:
        """Give the error for a compiler that ended before its time."""
        self._wait(_DYING)
        return UnavailableError(f"the compiler ended with status {self.status}: {self.output()[-_SHOWN:].strip()}")

    def finish(self) -> int:
        """Let it compile to its end, and give the exit status.

        Raises:
            DeadlineError: it does not end in time.

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
        """Kill what is left of it and remove the folder; twice is once."""
        self._clean()


def _clean_up(process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]") -> None:
    # The group outlives its leader: whatever the compiler started goes with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    folder.cleanup()


def _filled(word: str, values: Mapping[str, object]) -> str:
    # No str.format: compilers' words may have braces of their own.
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
