"""kill −9 under full speed: what was acknowledged is there, and the file is whole."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path

from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, ServerFactory
from tests.server.ledger.asking import rows

PROCESSES, SESSIONS = 4, 4
"""Sixteen sessions at a time; fewer processes, because starting them is what takes long."""

KILLS = 10

AFTER = 25
"""Acknowledgements of the first process before a kill."""

ASKER = """
# For each line on stdin, ask the server that it names until that is killed.
import sys
import threading
from policybridge_serdes import Outcome, PolicyBridgeError
from tests.server.ledger.asking import ask, open_network, rows

lock = threading.Lock()

def run(address, seed):
    asked = rows(300, seed)
    try:
        for number in range(10**9):
            session, advices, stride = open_network(address), b"", 1 + number % 3
            for report in range(3):
                advices += ask(session, asked[::stride])
                session.report(Outcome({"report": report}, "ok"))
                with lock:
                    print(session.id, seed, stride, report, advices.hex(), flush=True)
            session.close()
    except PolicyBridgeError:
        pass  # the server was killed

for line in sys.stdin:
    socket, grpc, seed, sessions = line.split()
    sessions = range(int(sessions))
    threads = [threading.Thread(target=run, args=(socket if n else grpc, int(seed) + n)) for n in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("over", flush=True)
"""

Asker = subprocess.Popen[str]


def test_whatever_was_acknowledged_survives_ten_kills_at_full_speed(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    acknowledged: dict[str, list[str]] = {}
    with started_askers() as askers:
        for kill in range(KILLS):
            server = server_factory(policies, "--ledger", ledger)
            acknowledged |= acknowledged_until_killed(askers, server, seed=100 * kill)
            assert check(ledger) == "ok"
    assert_held(ledger, acknowledged)
    assert len(acknowledged) >= KILLS * PROCESSES * SESSIONS


@contextmanager
def started_askers() -> Iterator[list[Asker]]:
    """Start the clients once: their imports take longer than their questions to one server."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with ExitStack() as stack:
        yield [stack.enter_context(start_asker(environment)) for _ in range(PROCESSES)]


def start_asker(environment: dict[str, str]) -> Asker:
    words = [sys.executable, "-c", ASKER]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def acknowledged_until_killed(askers: list[Asker], server: RunningServer, seed: int) -> dict[str, list[str]]:
    """Ask from many sessions, kill the server in the middle, and give the last acknowledgement of each session."""
    for n, asker in enumerate(askers):
        assert asker.stdin is not None
        print(server.socket, server.grpc, seed + n * SESSIONS, SESSIONS, file=asker.stdin, flush=True)
    said = [iter(asker.stdout.readline, "over\n") for asker in askers if asker.stdout is not None]
    first = list(islice(said[0], AFTER))
    os.kill(server.process.pid, signal.SIGKILL)
    with ThreadPoolExecutor(PROCESSES) as pool:
        rest: list[list[str]] = list(pool.map(list, said))
    last: dict[str, list[str]] = {}
    for line in chain(first, *rest):
        session_id, *told = line.split()
        last[session_id] = told
    return last


def check(ledger: Path) -> str:
    database = sqlite3.connect(ledger)
    (said,) = database.execute("PRAGMA integrity_check").fetchone()
    database.close()
    return str(said)


def assert_held(ledger: Path, acknowledged: dict[str, list[str]]) -> None:
    with LedgerReader(ledger) as reader:
        for session_id, (seed, stride, report, advices) in acknowledged.items():
            session = reader.session(session_id)
            (batch,) = reader.trajectory(session).batches
            due = bytes.fromhex(advices)
            once = b"".join(row.tobytes() for row in rows(300, int(seed))[:: int(stride)])
            observed = once * (int(report) + 1)
            assert batch.observations.tobytes()[: len(observed)] == observed
            assert batch.advices.tobytes()[: len(due)] == due
            assert batch.steps.tolist() == list(range(1, len(batch) + 1))
            assert session.lost == 0
            assert session.outcome is not None
            assert session.outcome.values["report"] >= int(report)
