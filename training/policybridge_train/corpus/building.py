"""Running a build so that nothing of it outlives us."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from policybridge_client.llvm.signals import AWAKE_WITHIN
from policybridge_core.errors import NotFoundError
from policybridge_train.corpus.notes import BuildCommand, read_notes
from policybridge_train.corpus.wrappers import recording_environment

_GRACE: Final = 3.0
"""Seconds between asking processes to end and ending them."""


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: IO[bytes] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a build in a session of its own; at the end, all processes of the session are ended.

    ``output`` takes standard output and error; None leaves them as ours are, and standard input, too.

    Raises:
        NotFoundError: there is no such program.
        OSError: the command cannot be started.

    """
    with _held_back() as release:
        process = _started(command, environment, folder, output)
        try:
            release()
            yield process
        finally:
            _end_session(process)


def _started(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: IO[bytes] | None
) -> "subprocess.Popen[bytes]":
    def start(words: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            words,
            env=environment,
            cwd=folder,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    try:
        return start(command)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no program {command[0]!r}: give the build's command behind --, as you would type it"
        ) from error
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script whose first line names no interpreter, which shells and make run so.
        return start(["/bin/sh", *command])


@contextmanager
def _held_back() -> Iterator[Callable[[], None]]:
    """Hold back interrupts until the given function is called: one amid a start would leave the process behind."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []
    set_now = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # The system's own handlers end this process at once, or do nothing.
    handlers = {number: handler for number, handler in set_now.items() if callable(handler)}

    def release() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        handlers.clear()
        while came:
            signal.raise_signal(came.pop())

    for number in handlers:
        signal.signal(number, lambda caught, _: came.append(caught))
    try:
        yield release
    finally:
        release()


def _end_session(leader: "subprocess.Popen[bytes]") -> None:
    """End all processes of a session, also in process groups that ``timeout`` or a shell made in it."""
    _signal(leader.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while _members(leader.pid) and time.monotonic() < deadline:
        leader.poll()
        time.sleep(0.02)
    while _members(leader.pid):
        _signal(leader.pid, signal.SIGKILL)
        leader.poll()
        time.sleep(0.01)
    leader.wait()


def _signal(session: int, number: int) -> None:
    for pid in _members(session):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _members(session: int) -> list[int]:
    """Give the living processes of a session (proc(5), stat: state is field 3, session is field 6)."""
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in processes if _is_member(entry, session)]


def _is_member(process: Path, session: int) -> bool:
    try:
        stat = (process / "stat").read_bytes()
    except OSError:
        return False
    fields = stat.rpartition(b")")[2].split()
    return fields[0] not in (b"Z", b"X") and int(fields[3]) == session


def record(
    command: Sequence[str], folder: Path, *, preload: bool = True, output: IO[bytes] | None = None
) -> tuple[int, list[BuildCommand]]:
    """Run a build and give its exit status and the commands that it ran.

    See `recording_environment` for ``preload``, and `running` for ``output``.

    A KeyboardInterrupt ends all processes of the build; this gives the commands that it ran until then, and status 130.

    Raises:
        OSError: the command cannot be started.

    """
    with tempfile.TemporaryDirectory(prefix="policybridge-record-") as notes:
        environment = recording_environment(Path(notes), os.environ, preload=preload)
        try:
            with running(command, environment, folder, output) as process:
                status = _status(process)
        except KeyboardInterrupt:
            sys.stderr.write("policybridge: interrupted; the build's processes are ended\n")
            status = 130
        return status if status >= 0 else 128 - status, read_notes(Path(notes))


def _status(build: "subprocess.Popen[bytes]") -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return build.wait(AWAKE_WITHIN)
