"""What the writer owes: everything is written soon, whatever else is asked of it, and as much as there is room for."""

import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_bench.network import SIGNATURE
from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes import (
    ElementType,
    Layout,
    Outcome,
    PolicyReference,
    PolicyVersion,
    Signature,
    TensorSpec,
    pack,
)
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger import database, sqlite, table_reader, writer
from policybridge_server.ledger.contract import Bounds, DroppedError
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.ledger.records import Begun, Record, Reported
from policybridge_server.ledger.sqlite import SqliteStore
from tests.conftest import RunningServer, ServerFactory
from tests.kills.asker import whole_session
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.test_bounds import ADVICE, FullDisk, names, pruned, session

PATIENCE = 60.0


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until it holds, which is soon unless the machine is very busy."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def decisions(ledger: Path) -> dict[str, int]:
    with LedgerReader(ledger) as reader:
        return {found.id: found.decisions for found in reader.sessions()}


@contextmanager
def steady_outcomes(address: str) -> Iterator[list[int]]:
    """Report an outcome again and again, with shorter pauses than the writer's period; give the count so far."""
    stop, count = threading.Event(), [0]
    opened = open_network(address)

    def report() -> None:
        while not stop.wait(0.05):
            opened.report(Outcome({"count": count[0]}))
            count[0] += 1

    thread = threading.Thread(target=report)
    thread.start()
    yield count
    stop.set()
    thread.join()
    opened.close()


def test_a_large_observation_of_an_open_session_waits_among_the_records_and_not_beside_them(tmp_path: Path) -> None:
    features = Layout((TensorSpec("x", ElementType.INT64, (-1,)),))
    recorder = LedgerRecorder(SqliteStore(tmp_path / "ledger.db", Bounds()))
    recording = recorder.opened(SessionView("large", PolicyVersion("network", 1, "sha256:0")))
    recording.bound(Signature(features, SIGNATURE.advice))
    recording.decided(pack(features, {"x": np.zeros(1 << 17, np.int64)}), ADVICE, None, 1)
    assert recorder.state.waiting_bytes > 1 << 20
    recorder.close()


def test_steady_outcomes_of_one_client_keep_neither_anothers_decisions_nor_retention_from_the_ledger(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger, "--ledger-max-bytes", 150_000)
    with steady_outcomes(server.socket) as reported:
        quiet = open_network(server.grpc)
        ask(quiet, rows(97))
        assert within(PATIENCE, lambda: decisions(ledger).get(quiet.id) == 97)
        first = open_network(server.grpc)
        ask(first, rows(300))
        first.close()
        for seed in range(12):
            filling = open_network(server.grpc)
            ask(filling, rows(300, seed))
            filling.close()
        assert within(PATIENCE, lambda: first.id not in decisions(ledger))
        assert filling.id in decisions(ledger)
        assert quiet.id in decisions(ledger), "it is open"
        quiet.close()
    assert reported[0] > 3


def test_a_grpc_session_that_ended_with_ok_has_its_end_in_the_ledger_when_the_server_is_killed_then(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger)
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        stub = PolicyServiceStub(channel)
        ended = [whole_session(stub, PolicyReference("network"), rows(3))[0] for _ in range(20)]
        server.kill()
    SqliteStore(ledger, Bounds()).close()
    with LedgerReader(ledger) as reader:
        found = list(reader.sessions())
    assert [each.id for each in found] == ended
    assert [(each.interrupted, each.decisions) for each in found] == [(False, 3)] * 20


@contextmanager
def files_of_at_most(server: RunningServer, size: int) -> Iterator[None]:
    """Let the server write no file beyond ``size`` bytes, as a disk does that is full."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def test_a_backlog_larger_than_what_is_free_is_written_as_far_as_there_is_room_the_oldest_first(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger)
    opened = open_network(server.socket)
    ask(opened, rows(1))
    opened.report(Outcome())
    size = max(each.stat().st_size for each in (ledger, ledger.with_name("ledger.db-wal")))
    with files_of_at_most(server, size + 20_000):
        asked = rows(500)
        ask(opened, asked * 4)
        with pytest.raises(UnavailableError, match="the ledger cannot be written now"):
            opened.report(Outcome({"x": 1}))
        assert within(PATIENCE, lambda: decisions(ledger)[opened.id] > 1)
        held = decisions(ledger)[opened.id]
        assert held < 2001
    assert within(PATIENCE, lambda: decisions(ledger)[opened.id] == 2001)
    connect(server.socket).report_outcome(opened.id, Outcome({"y": 2}))
    with LedgerReader(ledger) as reader:
        found = reader.session(opened.id)
        (batch,) = reader.trajectory(found).batches
    assert found.lost == 0
    assert batch.observations.tobytes() == b"".join(row.tobytes() for row in rows(1) + asked * 4)


def test_what_waits_for_a_full_disk_is_bounded_in_memory_and_never_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ROOM", 100_000)
    recorder = LedgerRecorder(FullDisk(SqliteStore(tmp_path / "ledger.db", Bounds()), 10**9))  # type: ignore[arg-type]
    told: list[PolicyBridgeError | None] = []
    for n in range(1000):
        recording = recorder.opened(
            SessionView(f"s{n}", PolicyVersion("network", 1, "sha256:0"), labels={"a": "b" * 99})
        )
        recording.bound(SIGNATURE)
        recording.decided(rows(1)[0], ADVICE, None, 1)
        recorder.report(f"s{n}", Outcome({"x": n}), told.append)
        recording.closed(told.append)
    assert sum(isinstance(each, TooLargeError) for each in told) > 1800, "told at once: nothing waits in memory"
    recorder.start(lambda call, *arguments: call(*arguments))
    recorder.close()
    assert len(told) == 2000
    assert None not in told


def test_a_record_that_the_tables_refuse_costs_no_other_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    records: list[Record] = [*session("one", 1.0), *session("one", 2.0)[:1], *session("two", 3.0)]
    refused = store.write([*records, Reported("nobody", Outcome(), 4.0)])
    store.close()
    assert {position: type(error).__name__ for position, error in refused.items()} == {
        4: "UnknownError",
        9: "NotFoundError",
    }
    assert names(tmp_path / "ledger.db") == ["one", "two"]


def test_a_log_that_a_reader_holds_is_told_and_is_cut_when_the_reader_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "_LONG_LOG", 1 << 20)
    monkeypatch.setattr(database, "_LOG_BYTES", 1 << 20)
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=400_000))
    log = tmp_path / "ledger.db-wal"
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM sessions").fetchone()
        for n in range(20):
            store.write(session(f"held{n}", 1.0))
        pruned(store)
        assert log.stat().st_size > 1 << 20
        assert "some program reads the ledger in one long transaction" in caplog.text
        other.execute("ROLLBACK")
    for n in range(5):
        store.write(session(f"free{n}", 1.0))
    assert log.stat().st_size <= 1 << 20
    store.close()


def test_an_outcome_of_a_session_that_was_dropped_says_that_it_may_have_been(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=100_000))
    store.write([*session("old", 1.0), *session("young", 1.0)])
    pruned(store)
    (error,) = store.write([Reported("old", Outcome({"x": 1}), 2.0)]).values()
    store.close()
    assert "no session 'old': it was never recorded, or it was dropped" in str(error)


def test_retention_drops_no_more_sessions_than_it_must_where_they_are_large(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=1 << 20))
    for n in range(20):
        store.write(session(f"s{n:02}", n))
    pruned(store)
    store.close()
    kept = names(tmp_path / "ledger.db")
    assert kept == [f"s{n:02}" for n in range(20 - len(kept), 20)]
    assert len(kept) >= 8


@pytest.fixture
def read(tmp_path: Path) -> Iterator[tuple[SqliteStore, LedgerReader]]:
    """Give a ledger of three sessions, beyond its bounds, and a reader of it."""
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=220_000))
    for n in range(3):
        begun, segment, *rest = session(f"s{n}", n)
        assert isinstance(begun, Begun)
        store.write([begun, segment, *rest])
    with LedgerReader(tmp_path / "ledger.db") as reader:
        yield store, reader
    store.close()


def test_a_session_that_is_dropped_before_it_is_read_is_an_error_and_is_skipped_among_others(
    read: tuple[SqliteStore, LedgerReader],
) -> None:
    store, reader = read
    first, *_, last = found = list(reader.sessions())
    listed = reader.batches(size=256)
    pruned(store)
    with pytest.raises(DroppedError, match=r"session s0 was dropped from the ledger .* while it was read"):
        reader.trajectory(first)
    assert len(reader.trajectory(last).batches[0]) == 256
    assert {each.sessions[0].id for each in listed} < {each.id for each in found}


def test_a_session_is_read_whole_though_it_is_dropped_meanwhile(read: tuple[SqliteStore, LedgerReader]) -> None:
    store, reader = read
    batches = reader.batches(size=100)
    first = next(batches)
    pruned(store)
    counts = {"s0": len(first)}
    for batch in batches:
        name = batch.sessions[0].id
        counts[name] = counts.get(name, 0) + len(batch)
    assert counts["s0"] == 256
    assert set(counts.values()) == {256}


def test_a_very_large_session_that_is_dropped_in_the_middle_of_reading_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "_CHUNK", 1000)
    monkeypatch.setattr(writer, "_PRUNE", 0.1)
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=10_000))
    recorder = LedgerRecorder(store)
    recording = recorder.opened(SessionView("large", PolicyVersion("network", 1, "sha256:0")))
    recording.bound(SIGNATURE)
    for row in rows(1000):
        recording.decided(row.tobytes(), ADVICE, None, 1)
    told: list[PolicyBridgeError | None] = []
    recorder.start(lambda call, *arguments: call(*arguments))
    recorder.report("large", Outcome(), told.append)
    assert within(PATIENCE, lambda: told == [None])
    with LedgerReader(tmp_path / "ledger.db") as reader:
        pieces = reader.segments(reader.session("large"))
        assert len(next(pieces)) == 256
        recording.closed(told.append)
        assert within(PATIENCE, lambda: names(tmp_path / "ledger.db") == [])
        with pytest.raises(DroppedError):
            list(pieces)
    recorder.close()
