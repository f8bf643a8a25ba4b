"""The rehearsal of a version: a process that is ended afterwards loads and probes it, before the server does.

So an artifact that never returns, or that takes all memory, costs the server nothing once it is refused. A process is
ended by the first version that is refused, or after a number of versions. Until then it has its frameworks loaded, so
that a version takes milliseconds.
"""

import os
import resource
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from policybridge_core.authors import describe
from policybridge_core.errors import PolicyBridgeError, PolicyFailedError, PreconditionError, UnavailableError
from policybridge_server.backends.contract import load_backend
from policybridge_server.backends.process.child import be_killed_first, end_with, keep_output_apart
from policybridge_server.backends.process.child_process import ChildProcess
from policybridge_server.backends.process.messages import Channel
from policybridge_server.engine.head import Head
from policybridge_server.engine.probe import Probe, confirm_probe, probe
from policybridge_server.repository import PolicyConfig, StoredVersion

_MODULE: Final = "policybridge_server.engine.rehearsal"

_IDLE: Final = 600.0
"""Seconds after which the process ends if nothing is rehearsed."""


_MOST: Final = 100
"""Versions that one process rehearses: a framework may keep memory of each."""


class _Asked(msgspec.Struct):
    """Load and probe the version in ``folder``; ``expected`` is known of the same architecture with other weights."""

    folder: str
    config: dict[str, Any]
    expected: Probe | None = None


class _Reply(msgspec.Struct):
    """The probe, or the reason for which the version cannot be loaded."""

    found: Probe | None = None
    refused: str = ""


class Rehearsal:
    """Rehearses versions, one at a time."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._count = 0
        self._closed = False

    def probe(self, stored: StoredVersion, folder: Path, expected: Probe | None, seconds: float) -> Probe:
        """Give the probe of a version whose files lie in ``folder``; blocks.

        Raises:
            PreconditionError: it cannot be loaded, or not within ``seconds``.
            UnavailableError: `close` was called.

        """
        is_new, due = self._process is None, time.monotonic() + seconds
        process = self._process = self._process or ChildProcess(_MODULE)
        # Another thread may close meanwhile: look after the process is known, so that one of both ends it.
        if self._closed:
            self._end(0.0)
        self._check_open(stored)
        asked = _Asked(str(folder.absolute()), msgspec.to_builtins(stored.config), expected)
        try:
            process.channel.send(asked, b"", due)
            reply, _ = process.channel.receive(_Reply, due)
        except TimeoutError:
            self._end(0.0)
            raise PreconditionError(f"{stored} was not loaded within {seconds:g} s") from None
        except (EOFError, OSError, PolicyFailedError):
            ended = self._end(0.2)
            self._check_open(stored)
            if is_new:
                raise PreconditionError(f"{stored} cannot be loaded: the process that probes it {ended}") from None
            # It was idle for long.
            return self.probe(stored, folder, expected, seconds)
        self._count += 1
        if reply.found is None or self._count >= _MOST:
            self._end(0.0)
        if reply.found is None:
            raise PreconditionError(f"{stored} cannot be loaded: {reply.refused}")
        return reply.found

    def _check_open(self, stored: StoredVersion) -> None:
        if self._closed:
            raise UnavailableError(f"{stored} is not loaded: the server ends")

    def _end(self, grace: float) -> str:
        process, self._process, self._count = self._process, None, 0
        return "" if process is None else process.kill(grace)

    def close(self) -> None:
        """End the process, also while it probes a version; no other begins."""
        self._closed = True
        self._end(0.0)


def start(arguments: list[str]) -> None:
    """Run as a program: the descriptors of the connection and of the lifeline are its arguments."""
    keep_output_apart()
    end_with(int(arguments[1]))
    be_killed_first()
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    while True:
        try:
            asked, _ = channel.receive(_Asked, time.monotonic() + _IDLE)
        except (EOFError, OSError):
            os._exit(0)
        reply = _found(asked)
        channel.send(reply)
        if reply.found is None:
            # It may hold memory or threads. The next version gets a new process.
            os._exit(0)


def _found(asked: _Asked) -> _Reply:
    try:
        _bound_memory()
        config = msgspec.convert(asked.config, PolicyConfig)
        with closing(load_backend(config.backend).load(Path(asked.folder), config)) as model:
            if config.head is not None:
                Head(config.head, model.signature.advice)
            if asked.expected is not None:
                return _Reply(confirm_probe(model, asked.expected, config.probe))
            return _Reply(probe(model, config.probe, must_answer=True))
    except BaseException as error:
        return _Reply(refused=str(error) if isinstance(error, PolicyBridgeError) else describe(error))


def _bound_memory() -> None:
    """Let the version have the memory that the machine has free: more of it would end other processes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            free = int(size.split()[0]) << 10
            resource.setrlimit(resource.RLIMIT_DATA, (free, resource.RLIM_INFINITY))
