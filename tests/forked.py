"""Servers that are forked from a process which has imported them: imports are half of a start's processor time.

A forked server runs the command's `main` in a process of its own, with the folder, environment, umask and output of the
test.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final

from tests.needs import ROOT

COMMAND: Final = (sys.executable, "-m", "policybridge_client.cli")
"""The words that ``policybridge`` stands for."""

_IMPORTED: Final = ("policybridge_server.cli", "policybridge_server.daemon", "watchfiles")
_LATE: Final = ("POLICYBRIDGE_", "XDG_", "PYTEST_", "ASAN_OPTIONS")
"""Beginnings of variables that a server reads when it runs, if at all; others may matter when it starts."""
_MOST: Final = 1 << 20
"""Bytes of a message."""
_PR_SET_CHILD_SUBREAPER: Final = 36


def start_server(*arguments: object, before: Sequence[str] = (), errors: int | None = None) -> subprocess.Popen[str]:
    """Start ``policybridge serve``; its output is piped, and its errors go to the descriptor ``errors``.

    Behind the words of another program, ``before``, and where the environment has changed, it starts as any program.
    """
    words = [*before, *COMMAND, "serve", *map(str, arguments)]
    plain = before or forking().environment != _foreign()
    made = subprocess.Popen[str] if plain else _Forked
    return made(words, stdout=subprocess.PIPE, stderr=errors, text=True)


def _foreign() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_LATE)}


class _Forked(subprocess.Popen[str]):
    """A forked server; a child of this process, as any program that it starts."""

    def _execute_child(self, words: Sequence[str], *more: Any) -> None:
        # The ends of pipes, or -1: of the input two, of the output two, of the errors two.
        inputs, outputs, errors = more[9], more[12], more[14]
        files = [own if given < 0 else given for own, given in enumerate((inputs, outputs, errors))]
        self.pid = forking().fork(words[len(COMMAND) :], files)
        self._child_created = True
        os.close(outputs)


class _Forking:
    """The process that forks servers; it ends with this one."""

    def __init__(self) -> None:
        self.environment = _foreign()
        self._lock = Lock()
        self._peer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
            self._process = subprocess.Popen(words, pass_fds=[theirs.fileno()], cwd=ROOT)

    def fork(self, words: Sequence[str], files: Sequence[int]) -> int:
        """Fork a server with these standard files; give its process id."""
        mask = os.umask(0)
        os.umask(mask)
        told = json.dumps([list(words), os.getcwd(), dict(os.environ), mask]).encode()  # noqa: PTH109 - as it is
        with self._lock, _adopting():
            socket.send_fds(self._peer, [told], list(files))
            return int(self._peer.recv(_MOST))


@cache
def forking() -> _Forking:
    """Give the process that forks servers; it starts with the environment of the first call."""
    return _Forking()


@contextmanager
def _adopting() -> Iterator[None]:
    """Be the parent of the descendants whose parent ends meanwhile."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _await_fork(peer: socket.socket) -> list[str]:
    """Fork for each message of the peer; return in the forked process alone, with the words of its command."""
    while True:
        told, files, *_ = socket.recv_fds(peer, _MOST, 3)
        if not told:
            os._exit(0)
        read, write = os.pipe()
        if (between := os.fork()) == 0:
            # Its end gives its child to the test's process, before that has the answer.
            if child := os.fork():
                os.write(write, str(child).encode())
                os._exit(0)
            peer.close()
            os.close(read)
            os.close(write)
            return _become(told, files)
        os.waitpid(between, 0)
        peer.send(os.read(read, _MOST))
        for file in (read, write, *files):
            os.close(file)


def _become(told: bytes, files: Sequence[int]) -> list[str]:
    words: list[str]
    words, folder, environment, mask = json.loads(told)
    for own, file in enumerate(files):
        os.dup2(file, own)
        os.close(file)
    os.chdir(folder)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    return words


def main() -> int:
    """Import a server; then fork one for each message of the socket whose descriptor is the first argument."""
    cli = import_module(COMMAND[-1])
    for name in _IMPORTED:
        import_module(name)
    words = _await_fork(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [str(cli.__file__), *words]
    status: int = cli.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
