"""The processes of the soak: a server that is started again after its faults, clients, and a publisher."""

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_bench.processes import free_port, module, running, wait_ready
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from tests.soak.client import ENDS, POLICY, SOURCE, Acknowledged

_TOML: Final = 'backend = "python"\ninline = true\n'


class Server:
    """One repository, one ledger and the same addresses through all its runs.

    Attributes:
        folder: has the repository, the ledger, the socket and the log.
        runs: how often it was started.
        slowest: seconds of the slowest start.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0
        self.slowest = 0.0
        self._port = free_port()
        self._stack = contextlib.ExitStack()
        write_version(folder / "policies" / POLICY / "1", 1)
        (folder / "policies" / POLICY / "policy.toml").write_text(_TOML)

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [f"grpc:127.0.0.1:{self._port}", f"socket:{self.folder / 'socket'}"]

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self.folder / "ledger"

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """Its present run."""
        return self._process

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--allow-python", "--allow-publish"]
        command += ["--repository", str(self.folder / "policies"), "--ledger", str(self.ledger), "--grace", "0.5"]
        command += ["--grpc", f"127.0.0.1:{self._port}", "--socket", str(self.folder / "socket")]
        begun, log = time.monotonic(), self.folder / f"log-{self.runs}"
        self._process = self._stack.enter_context(running(command, log, talk=True))
        wait_ready(self._process, log)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.runs += 1

    def end(self, number: signal.Signals) -> None:
        """End its present run by a signal."""
        self._process.send_signal(number)
        self._process.wait(ENDS)
        self._stack.close()


def write_version(folder: Path, mark: int) -> Path:
    """Write the version whose advice has this mark."""
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text(SOURCE.format(mark))
    return folder


class Clients:
    """Client processes and their messages.

    Attributes:
        acknowledged: the sessions that the server acknowledged.
        errors: how often a session ended with an error, by its class.
        wrong: what may not be: advice of two artifacts in one session, a client that hangs.

    """

    def __init__(self, server: Server, count: int, seed: int) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._server = server
        self._seeds = iter(range(seed * 1000, seed * 1000 + 1_000_000))
        self._members = [self._start() for _ in range(count)]

    def _start(self) -> "_Client":
        seed, pipe = next(self._seeds), subprocess.PIPE
        command = module("tests.soak.client", seed, *self._server.addresses)
        log = self._server.folder / f"client-{seed}"
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        return _Client(process, reader, log)

    def _read(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            with self._lock, contextlib.suppress(ValueError):
                said = json.loads(line)
                if "acknowledged" in said:
                    self.acknowledged.append(Acknowledged(**said["acknowledged"]))
                elif "wrong" in said:
                    self.wrong.append(said["wrong"])
                else:
                    self.errors[said["error"]] += 1

    def kill(self, which: int) -> None:
        """Kill one client in the middle of its session; another one takes its place."""
        which %= len(self._members)
        self._members[which].process.kill()
        self._members[which].wait()
        self._members[which] = self._start()

    def stop(self) -> None:
        """Let the clients end their sessions."""
        for member in self._members:
            if member.process.stdin is not None:
                member.process.stdin.close()
        for member in self._members:
            try:
                member.process.wait(ENDS)
            except subprocess.TimeoutExpired:
                member.process.kill()
                self.wrong.append(f"a client hung:\n{member.log.read_text()}")
            member.wait()


@dataclass(frozen=True)
class _Client:
    process: "subprocess.Popen[str]"
    reader: threading.Thread
    log: Path

    def wait(self) -> None:
        """Wait until it has ended and all that it said is read."""
        with self.process:
            self.reader.join(ENDS)


class Publisher(threading.Thread):
    """Publishes versions, each as soon as the one before is acknowledged.

    Attributes:
        acknowledged: the numbers that the server gave.
        refused: how many corrupt versions were refused.
        accepted: how many corrupt versions were accepted, which must not happen.
        failed: how many publications failed, because of a fault.

    """

    _PAUSE: Final = 0.5

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.refused = self.accepted = self.failed = 0
        self._server = server
        self._over = threading.Event()
        self._marks = itertools.count(2)

    def run(self) -> None:
        """Publish until `stop`."""
        while not self._over.wait(self._PAUSE):
            self._publish(corrupt=(self.refused + len(self.acknowledged)) % 5 == 4)

    def _publish(self, *, corrupt: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="pb-soak-") as scratch:
            files = write_version(Path(scratch) / "version", next(self._marks))
            if corrupt:
                (files / "policy.py").write_text("class Policy:\n    def evaluate(self\n")
            client = RepositoryClient(self._server.addresses[0])
            try:
                number = client.publish(POLICY, files).version
            except PolicyBridgeError as error:
                self._note(corrupt=corrupt and "policy.py" in str(error))
            else:
                self.accepted += corrupt
                self.acknowledged.append(number)
            finally:
                client.close()

    def _note(self, *, corrupt: bool) -> None:
        if corrupt:
            self.refused += 1
        else:
            self.failed += 1

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self.join()
