"""kill −9 under full speed: what was acknowledged is there, and the file is whole."""

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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

socket, grpc, seed, sessions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for n in range(sessions):
    threading.Thread(target=run, args=(socket if n else grpc, seed + n)).start()
"""


def test_whatever_was_acknowledged_survives_ten_kills_at_full_speed(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    acknowledged: dict[str, list[str]] = {}
    for kill in range(KILLS):
        server = server_factory(policies, "--ledger", ledger)
        acknowledged |= acknowledged_until_killed(server, seed=100 * kill)
        assert check(ledger) == "ok"
    assert_held(ledger, acknowledged)
    assert len(acknowledged) >= KILLS * PROCESSES * SESSIONS


def acknowledged_until_killed(server: RunningServer, seed: int) -> dict[str, list[str]]:
    """Ask from many sessions, kill the server in the middle, and give the last acknowledgement of each session."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with ExitStack() as stack:
        askers = []
        for n in range(PROCESSES):
            words = [sys.executable, "-c", ASKER, server.socket, server.grpc, str(seed + n * SESSIONS), str(SESSIONS)]
            asker = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
            askers.append(stack.enter_context(asker))
        said = [asker.stdout for asker in askers if asker.stdout is not None]
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
