"""A policy server of our own, ``policybridge serve``, that is started again where it dies, at the same addresses."""

import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import sleep
from typing import Final, Self

from policybridge_client.llvm.process import Watchdog
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import UnavailableError

READY_WITHIN: Final = 120.0
"""Seconds that a server may take to start, and to load a version."""

_DRAINED_WITHIN: Final = 30.0
_STARTS: Final = 5
_BETWEEN: Final = 1.0
"""Starts, and seconds between them: the server of a run that was killed holds the ledger until its watchdog ends it."""

_WRITTEN: Final = "server.log"


class KeptServer:
    """Serves compilers of this machine by a Unix socket, and keeps a ledger. Usable from any thread.

    Args:
        folder: it gets ``ledger.db`` and ``server.log``.
        arguments: of ``policybridge serve``, beside its addresses and the ledger.
        host: an address of this machine on which the server listens for others, too, at a port that is free.

    Attributes:
        socket: the address for compilers.
        ledger: the file with the sessions.
        policies: its repository.

    Raises:
        UnavailableError: it does not start; the message has its last words.

    """

    def __init__(self, folder: Path, arguments: Sequence[str], host: str | None = None) -> None:
        self._folder = folder
        self._arguments = arguments
        self._outside = f"{host}:0" if host else None
        self._held = ExitStack()
        # The path of a Unix socket is 107 bytes at most, which a user's folder may exceed.
        self._sockets = Path(self._held.enter_context(TemporaryDirectory(prefix="policybridge-train-")))
        self.socket = f"socket:{self._sockets / 'compilers'}"
        self.ledger = folder / "ledger.db"
        self._lock = Lock()
        self._watchdog = ExitStack()
        try:
            self._process = self._start()
        except BaseException:
            self._watchdog.close()
            self._held.close()
            raise
        self.policies = RepositoryClient(f"grpc:unix:{self._sockets / 'grpc'}", timeout=READY_WITHIN)
        self._held.callback(self.policies.close)

    @property
    def outside(self) -> str | None:
        """The address for other machines, ``HOST:PORT``; ``None`` if there is none."""
        return self._outside

    def _start(self) -> "subprocess.Popen[str]":
        for _ in range(_STARTS - 1):
            with suppress(UnavailableError):
                return self._try()
            sleep(_BETWEEN)
        return self._try()

    def _try(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--ledger", str(self.ledger)]
        command += ["--socket", str(self._sockets / "compilers"), "--grpc", f"unix:{self._sockets / 'grpc'}"]
        if self._outside is not None:
            command += ["--grpc", self._outside]
        log = self._folder / _WRITTEN
        with log.open("ab") as errors:
            # A group of its own, so that Ctrl-C reaches the trainer alone, which then ends the server.
            process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._watchdog.close()
        self._watchdog.enter_context(Watchdog(process.pid, self._sockets))
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        ready = select.select([process.stdout], [], [], READY_WITHIN)[0] and process.stdout.readline()
        if not ready:
            process.kill()
            process.wait()
            said = log.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
            raise UnavailableError(f"the server of this run did not start: {said or 'it said nothing'}")
        self._note(ready)
        return process

    def _note(self, ready: str) -> None:
        """Keep the port that was free, so that the server has it when it is started again."""
        if self._outside is not None:
            listed = (word.partition(":") for word in ready.split()[1:])
            self._outside = next(rest for kind, _, rest in listed if kind in ("grpc", "grpcs") and rest[:5] != "unix:")

    def ensure(self) -> bool:
        """Start the server again if it has died; tell whether it had."""
        with self._lock:
            if self._process.poll() is None:
                return False
            self._process = self._start()
            return True

    def close(self) -> None:
        """End the server: its sessions may end, and the ledger is written."""
        with self._lock:
            self._process.terminate()
            try:
                self._process.wait(_DRAINED_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        self._watchdog.close()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
