"""Start processes, wait until they are ready, measure them and end them."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from policybridge_core.errors import PolicyFailedError, PreconditionError

_GRACE = 20.0
_SPIN = "import os\nos.nice(19)\nprint('ready', flush=True)\nwhile True: pass"


@dataclass(frozen=True)
class Usage:
    """CPU (seconds so far) and memory (bytes now) of a process and its children."""

    cpu: float
    rss: int


def usage(pid: int) -> Usage:
    """Measure the process ``pid`` with all its children; the CPU of children that have ended is included."""
    cpu, rss, first = 0.0, 0, psutil.Process(pid)
    for process in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            cpu += times.user + times.system + times.children_user + times.children_system
            rss += process.memory_info().rss
    return Usage(cpu, rss)


@dataclass(frozen=True)
class Started:
    """A server that is ready.

    Attributes:
        pid: of its first process.
        addresses: on which it listens, from its ready line.

    """

    pid: int
    addresses: Sequence[str]


@contextlib.contextmanager
def server(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[Started]:
    """Run a server that prints one line, ``ready ADDRESS…``, until the body ends.

    Raises:
        PolicyFailedError: it ended before it was ready; the message has the end of its ``log``.

    """
    with running(command, log, env=env, talk=True) as process:
        yield Started(process.pid, wait_ready(process, log))


@contextlib.contextmanager
def regime(*, busy: bool) -> Iterator[None]:
    """If ``busy``, keep every core awake in the body, by a process of the lowest priority on each.

    An idle core takes about as long to wake up as an answer takes. On a machine that compiles, cores are awake.
    """
    with contextlib.ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)) if busy else ():
            spinner = stack.enter_context(server([sys.executable, "-c", _SPIN]))
            os.sched_setaffinity(spinner.pid, {core})
        yield


@contextlib.contextmanager
def running(
    command: Sequence[object], log: Path | None = None, *, env: Mapping[str, str] | None = None, talk: bool = False
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a process until the body ends; its errors go to the ``log``.

    With ``talk`` its input and output are pipes; otherwise its output goes to the log too.
    """
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(log.open("wb")) if log else None
        pipe, words = subprocess.PIPE if talk else None, [str(word) for word in command]
        process = stack.enter_context(
            subprocess.Popen(words, stdin=pipe, stdout=pipe or errors, stderr=errors, env={**os.environ, **(env or {})})
        )
        stack.callback(_end, process)
        yield process


def tail(log: Path | None) -> str:
    """Give the end of a log."""
    return log.read_text(errors="replace")[-2000:] if log else ""


def wait_ready(process: "subprocess.Popen[bytes]", log: Path | None = None) -> list[str]:
    """Wait for the line ``ready ADDRESS…``, and give its addresses.

    Raises:
        PolicyFailedError: the process ended before it was ready; the message has the end of its ``log``.

    """
    for line in process.stdout or ():
        if line.startswith(b"ready"):
            return line.decode().split()[1:]
    raise PolicyFailedError(f"{process.args!r} ended with {process.wait()} before it was ready\n{tail(log)}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process: by SIGTERM, after the grace period by SIGKILL; and all children that it leaves behind."""
    children: list[psutil.Process] = []
    if process.poll() is None:
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()


def run_tool(command: Sequence[str | Path], folder: Path | None = None) -> None:
    """Run a tool to its end, in the working directory ``folder``.

    Raises:
        PreconditionError: it failed; the message has the end of its output.

    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise PreconditionError(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def module(name: str, *arguments: object) -> list[str]:
    """Give the command that runs a Python module with this interpreter."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def free_port() -> int:
    """Give a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
