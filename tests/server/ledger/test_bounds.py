"""A ledger is bounded by size and by age; the oldest sessions that are over go first."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_core.errors import PolicyBridgeError, TooLargeError, UnavailableError
from policybridge_serdes import Outcome, PolicyVersion, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger import writer
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.ledger.records import Begun, Ended, Lost, Record, Reported, Segment
from policybridge_server.ledger.sqlite import SqliteStore
from tests.conftest import ServerFactory
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.publishing.policies import wait_for

ADVICE: Values = np.zeros(1, SIGNATURE.advice_layout.dtype)


def session(name: str, begun: float, *, over: bool = True) -> list[Record]:
    """Give the records of a session of 80 KB that no compressor makes smaller."""
    view = SessionView(name, PolicyVersion("network", 1, "sha256:0"))
    noise = [np.random.default_rng(n).bytes(SIGNATURE.features.size) for n in range(256)]
    kept: list[tuple[Row, Values, float | None, int]] = [(row, ADVICE, None, 1) for row in noise]
    records: list[Record] = [Begun(view, begun), Segment(name, 1, SIGNATURE, "", kept, 256 * 304)]
    return records + [Ended(name, begun + 1)] * over + [Reported(name, Outcome({"x": 1}), begun)]


def pruned(store: SqliteStore) -> None:
    """Let it prune until nothing is left to do."""
    while store.prune():
        pass


def names(ledger: Path) -> list[str]:
    with LedgerReader(ledger) as reader:
        return [found.id for found in reader.sessions()]


def test_above_its_bytes_a_ledger_drops_the_oldest_sessions_and_gives_the_room_back(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    store = SqliteStore(ledger, Bounds(bytes=8 << 20))
    for n in range(150):
        store.write(session(f"s{n:03}", n, over=n > 0))
    pruned(store)
    store.close()
    kept = names(ledger)
    assert kept[0] == "s000", "it is still open"
    assert kept[1:] == [f"s{n:03}" for n in range(151 - len(kept), 150)]
    assert 10 < len(kept) < 110
    assert ledger.stat().st_size <= 8 << 20


def test_within_its_bounds_nothing_is_dropped(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds(bytes=8 << 20, age=3600))
    store.write(session("only", time.time()))
    pruned(store)
    store.close()
    assert names(tmp_path / "ledger.db") == ["only"]


def test_a_server_keeps_to_the_bounds_that_it_is_given(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger, "--ledger-max-age", 1)
    opened = open_network(server.socket)
    ask(opened, rows(10))
    opened.report(Outcome())
    opened.close()
    end = time.monotonic() + 60
    while names(ledger) and time.monotonic() < end:
        time.sleep(0.1)
    assert names(ledger) == []


def test_after_a_kill_the_open_sessions_are_told_as_interrupted(
    policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger)
    opened = open_network(server.socket)
    ask(opened, rows(1))
    opened.report(Outcome())
    server.kill()
    opened.close()
    server_factory(policies, "--ledger", ledger)
    with LedgerReader(ledger) as reader:
        found = reader.session(opened.id)
    assert found.interrupted
    assert found.closed is not None


def test_a_client_that_reports_faster_than_the_store_writes_waits_and_loses_nothing(tmp_path: Path) -> None:
    recorder = LedgerRecorder(SqliteStore(tmp_path / "ledger.db", Bounds()))
    recording = recorder.opened(SessionView("one", PolicyVersion("network", 1, "sha256:0")))
    recording.bound(SIGNATURE)
    observations, advices = bytes(1024 * SIGNATURE.features.size), bytes(1024 * ADVICE.nbytes)
    reports, went_on = 0, Event()
    while reports == 0 or went_on.is_set():
        went_on.clear()
        recording.reported(1024, observations, advices, 1)
        reports += 1
        assert reports < 500, "nothing makes the client wait"
        recording.keep_pace(went_on.set)
    recorder.start(lambda call, *arguments: call(*arguments))
    assert went_on.wait(120)
    recorder.close()
    with LedgerReader(tmp_path / "ledger.db") as reader:
        found = reader.session("one")
    assert (found.decisions, found.lost, found.outcome) == (1024 * reports, 0, None)


def test_a_store_that_cannot_keep_up_costs_decisions_of_the_record_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ROOM", 1000 * (SIGNATURE.features.size + 300))
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    recorder = LedgerRecorder(store)
    view = SessionView("one", PolicyVersion("network", 1, "sha256:0"))
    recording = recorder.opened(view)
    recording.bound(SIGNATURE)
    for row in rows(1500):
        recording.decided(row.tobytes(), ADVICE, None, 1)
    # Nobody writes yet: the thread begins with `start`.
    told: list[PolicyBridgeError | None] = []
    recorder.start(lambda call, *arguments: call(*arguments))
    recorder.report("one", Outcome(status="ok"), told.append)
    recorder.close()
    assert isinstance(told[0], TooLargeError)
    with LedgerReader(tmp_path / "ledger.db") as reader:
        found = reader.session("one")
        (batch,) = reader.trajectory(found).batches
    assert (found.decisions, found.lost) == (988, 512)
    # Two whole segments found no room; the last and smaller one did.
    assert batch.steps.tolist() == [*range(1, 769), *range(1281, 1501)]


class FullDisk:
    """A store that cannot write for a while."""

    def __init__(self, store: SqliteStore, failures: int) -> None:
        self._store = store
        self._failures = failures

    def write(self, records: list[Record]) -> object:
        if self._failures:
            self._failures -= 1
            raise UnavailableError("no space left on device")
        return self._store.write(records)

    def prune(self) -> None:
        """Drop nothing."""

    def close(self) -> None:
        self._store.close()


def test_what_could_not_be_written_is_not_acknowledged_and_is_written_when_there_is_room_again(tmp_path: Path) -> None:
    recorder = LedgerRecorder(FullDisk(SqliteStore(tmp_path / "ledger.db", Bounds()), 1))  # type: ignore[arg-type]
    recording = recorder.opened(SessionView("one", PolicyVersion("network", 1, "sha256:0")))
    recording.bound(SIGNATURE)
    recording.decided(rows(1)[0], ADVICE, None, 1)
    told: list[PolicyBridgeError | None] = []
    recorder.start(lambda call, *arguments: call(*arguments))
    recorder.report("one", Outcome(status="ok"), told.append)
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        time.sleep(0.01)
    recorder.report("one", Outcome({"x": 1}), told.append)
    recorder.close()
    assert isinstance(told[0], UnavailableError)
    assert told[1:] == [None]
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (found,) = reader.sessions(Query(status="ok"))
    assert (found.decisions, found.outcome) == (1, Outcome({"x": 1}, "ok"))


def test_a_record_that_cannot_be_kept_costs_only_its_own_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    bad = Segment("bad", 1, SIGNATURE, "\udc80", [(b"", ADVICE, None, 1)], 1)
    begun = [Begun(SessionView("bad", PolicyVersion("network", 1, "sha256:0")), 0.0)]
    store.write([*begun, bad, *session("good", 1.0), Lost("good", 0)])
    store.close()
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert [(found.id, found.decisions, found.lost) for found in reader.sessions()] == [
            ("bad", 0, 1),
            ("good", 256, 0),
        ]


def test_the_room_of_written_records_is_free_again_and_a_session_that_asks_nothing_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ROOM", 1000 * (SIGNATURE.features.size + 300))
    with closing(LedgerRecorder(SqliteStore(tmp_path / "ledger.db", Bounds()))) as recorder:
        recording = recorder.opened(SessionView("one", PolicyVersion("network", 1, "sha256:0")))
        recording.bound(SIGNATURE)
        told: list[PolicyBridgeError | None] = []
        recorder.start(lambda call, *arguments: call(*arguments))
        for times in range(1, 6):
            for row in rows(700):
                recording.decided(row.tobytes(), ADVICE, None, 1)
            recorder.report("one", Outcome({"times": times}), told.append)
            wait_for(lambda: len(told) == times)  # noqa: B023 - it is called in this turn
            recorder.hand_over()
        wait_for(lambda: recorder.state.waiting_bytes == 0)
        assert told == [None] * 5
        assert (recorder.state.lost, recorder.state.lag) == (0, 0.0)
        assert recorder.state.written_bytes > 3500 * SIGNATURE.features.size
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (found,) = reader.sessions()
        assert (found.decisions, found.lost) == (3500, 0)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        (empty,) = database.execute("SELECT count(*) FROM segments WHERE count = 0").fetchone()
    assert empty == 0


def test_of_a_record_that_cannot_be_kept_nothing_is_kept(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "ledger.db", Bounds())) as store:
        view = SessionView("one", PolicyVersion("network", 1, "sha256:0"))
        store.write([Begun(view, 1.0), Reported("one", Outcome({"x": 1.0}, "ok"), 2.0)])
        # The first value can be written, and the second cannot.
        bad = Reported("one", Outcome({"x": 2.0, "y": 1 << 70}, "failed"), 3.0)
        assert list(store.write([bad, Reported("one", Outcome({"z": 3.0}), 4.0)])) == [0]
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert reader.session("one").outcome == Outcome({"x": 1.0, "z": 3.0}, "ok")
