"""Reading: queries, batches for trainers, and readers beside a writing server."""

import shlex
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policybridge_core.errors import NotFoundError, UnavailableError
from policybridge_serdes import Outcome, SessionOptions
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.sqlite import SqliteStore
from tests.conftest import command
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_bounds import session


@pytest.fixture(scope="module")
def known(recording: Recording) -> list[str]:
    """Record four sessions, two on each version, with 100, 200, 300 and 400 decisions."""
    ids = []
    for n in range(1, 5):
        options = SessionOptions(labels={"n": str(n), "kind": "odd" if n % 2 else "even"})
        session = open_network(recording.server.socket, options, f"network@{1 + n % 2}")
        ask(session, rows(100 * n, seed=n))
        session.report(Outcome({"text": n} if n < 4 else {}, "ok" if n < 3 else "crash"))
        session.close()
        ids.append(session.id)
    return ids


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (Query(), [1, 2, 3, 4]),
        (Query(policy="network"), [1, 2, 3, 4]),
        (Query(policy="nobody"), []),
        (Query(versions=(2, 9)), [1, 3]),
        (Query(versions=(1, 1)), [2, 4]),
        (Query(labels={"kind": "even"}), [2, 4]),
        (Query(labels={"kind": "even", "n": "4"}), [4]),
        (Query(labels={"kind": "x' OR 1"}), []),
        (Query(status="crash"), [3, 4]),
        (Query(since=4e9), []),
        (Query(until=0), []),
    ],
    ids=str,
)
def test_a_query_narrows_by_each_of_its_conditions(
    recording: Recording, known: list[str], query: Query, wanted: list[int]
) -> None:
    with recording.reader() as reader:
        assert [session.id for session in reader.sessions(query)] == [known[n - 1] for n in wanted]


def test_batches_have_the_size_asked_for_and_hold_everything_in_order(recording: Recording, known: list[str]) -> None:
    with recording.reader() as reader:
        batches = list(reader.batches(Query(policy="network"), size=150))
    assert all(len(batch) <= 150 for batch in batches)
    assert b"".join(batch.observations.tobytes() for batch in batches) == b"".join(
        row.tobytes() for n in range(1, 5) for row in rows(100 * n, seed=n)
    )
    ids = [batch.sessions[index].id for batch in batches for index in batch.session]
    assert ids == [known[n] for n in range(4) for _ in range(100 * (n + 1))]
    texts = np.concatenate([batch.outcome("text") for batch in batches])
    assert texts[:600].tolist() == [1.0] * 100 + [2.0] * 200 + [3.0] * 300
    assert np.isnan(texts[600:]).all()


def test_trajectories_are_whole_sessions(recording: Recording, known: list[str]) -> None:
    with recording.reader() as reader:
        found = list(reader.trajectories(Query(labels={"kind": "odd"})))
    assert [trajectory.session.id for trajectory in found] == [known[0], known[2]]
    assert [len(batch) for trajectory in found for batch in trajectory.batches] == [100, 300]


def test_a_session_is_found_by_the_beginning_of_its_id(recording: Recording, known: list[str]) -> None:
    with recording.reader() as reader:
        assert reader.session(known[0][:12]).id == known[0]
        with pytest.raises(NotFoundError, match="4 sessions"):
            reader.session("")
        with pytest.raises(NotFoundError, match="no sessions"):
            reader.session("nobody")


def test_a_ledger_that_is_not_there_is_said_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no ledger"):
        LedgerReader(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_readers_read_whole_sessions_while_a_server_writes(recording: Recording) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            with recording.reader() as reader:
                while not stop.is_set():
                    for trajectory in reader.trajectories(Query(status="whole")):
                        (batch,) = trajectory.batches
                        assert len(batch) == trajectory.session.decisions == 500
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        session = open_network(recording.server.socket)
        ask(session, rows(500))
        session.report(Outcome(status="whole"))
        session.close()
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []


def test_a_ledger_on_a_read_only_disk_is_read(tmp_path: Path) -> None:
    ledger = tmp_path / "disk" / "runs.db"
    ledger.parent.mkdir()
    with closing(SqliteStore(ledger, Bounds())) as store:
        store.write(session("kept", 1.0))
    disk = shlex.quote(str(ledger.parent))
    mounts = f"mount --bind {disk} {disk} && mount -o remount,ro,bind {disk}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounts], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    words = shlex.join(command("sessions", "list", "--json", "--ledger", ledger))
    tried = f"{mounts} && ! touch {disk}/x && {words}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", tried], capture_output=True, text=True, check=True)
    assert '"id":"kept"' in done.stdout.replace(" ", "")
