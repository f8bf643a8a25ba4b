"""Messages of decisions that a client makes by itself: those that follow each other stand in the ledger together."""

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_core.errors import InvalidError
from policybridge_serdes import Outcome, PolicyVersion, Signature
from policybridge_serdes.interactive import context_line, decided_lines, header_line
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.query import SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.recorder import LedgerRecorder, LedgerRecording
from policybridge_server.ledger.sqlite import SqliteStore
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.conftest import ServerFactory
from tests.server.ledger.asking import await_forms, rows
from tests.server.ledger.test_bounds import ADVICE
from tests.server.ledger.test_client_decisions import open_forms, payload
from tests.server.ledger.test_writer import PATIENCE, within

SIZE = SIGNATURE.features.size
SEGMENT = 1 << 18


def told(count: int, seed: int = 1, fault: int = 0) -> bytes:
    """Give a message of decisions, whose last bytes may lack."""
    sent = b"".join(row.tobytes() for row in rows(count, seed)) + np.zeros(count, "<i8").tobytes()
    return decided_lines(count, 5 * count, sent)[: -fault or None]


@contextmanager
def recorded(tmp_path: Path, view: SessionView) -> Iterator[LedgerRecording]:
    recorder = LedgerRecorder(SqliteStore(tmp_path / "ledger.db", Bounds()))
    recording = recorder.opened(view)
    recording.bound(SIGNATURE)
    yield recording
    recording.closed()
    recorder.close()


def report(recording: LedgerRecording, count: int, nanoseconds: int = 5, seed: int = 1) -> None:
    recording.reported(count, b"".join(row.tobytes() for row in rows(count, seed)), bytes(8 * count), nanoseconds)


def found(tmp_path: Path) -> tuple[SessionRecord, DecisionBatch]:
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (session,) = reader.sessions()
        batches = reader.trajectory(session).batches
    assert batches
    return session, batches[0]


def segments(tmp_path: Path) -> list[tuple[int, int, int, str]]:
    """Give the first step, the number of decisions, the bytes of observations and the context of each segment."""
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        read = database.execute("SELECT first, count, count * ?, context FROM segments ORDER BY first", (SIZE,))
        return read.fetchall()


@pytest.fixture
def view() -> SessionView:
    return SessionView("one", PolicyVersion("network", 1, "sha256:0"), context="a.c")


def test_messages_that_follow_each_other_become_one_segment_and_keep_their_times(
    tmp_path: Path, view: SessionView
) -> None:
    with recorded(tmp_path, view) as recording:
        for number in range(4):
            report(recording, 70, nanoseconds=number, seed=number)
    session, batch = found(tmp_path)
    assert (session.decisions, session.lost) == (280, 0)
    assert [count for _, count, *_ in segments(tmp_path)] == [280]
    assert batch.nanoseconds.tolist() == np.repeat(range(4), 70).tolist()
    sent = b"".join(row.tobytes() for number in range(4) for row in rows(70, number))
    assert batch.observations.tobytes() == sent
    assert batch.steps.tolist() == list(range(1, 281))


def test_another_context_and_what_the_server_was_asked_for_keep_their_places(tmp_path: Path, view: SessionView) -> None:
    (asked,) = rows(1, 9)
    with recorded(tmp_path, view) as recording:
        report(recording, 3, 1)
        recording.decided(asked.tobytes(), ADVICE, None, 2)
        report(recording, 2, 3)
        view.context = "b.c"
        report(recording, 1, 4)
        report(recording, 1, 5)
    _, batch = found(tmp_path)
    assert [(first, count, context) for first, count, _, context in segments(tmp_path)] == [
        (1, 3, "a.c"),
        (4, 1, "a.c"),
        (5, 2, "a.c"),
        (7, 2, "b.c"),
    ]
    assert batch.nanoseconds.tolist() == [1, 1, 1, 2, 3, 3, 4, 5]
    assert batch.observations[3].tobytes() == asked.tobytes()


def test_a_segment_stays_small_however_a_client_cuts_its_decisions(tmp_path: Path, view: SessionView) -> None:
    counts = [1] * 3000 + [1024, 1, 1024, 1023]
    with recorded(tmp_path, view) as recording:
        for count in counts:
            report(recording, count)
    session, batch = found(tmp_path)
    assert (session.decisions, session.lost) == (sum(counts), 0)
    each = segments(tmp_path)
    assert max(size for _, _, size, _ in each) <= SEGMENT
    # Tiny messages count by the objects that they are in memory, too.
    assert 8 < len(each) < 40
    assert batch.steps.tolist() == list(range(1, sum(counts) + 1))
    assert batch.observations[-1].tobytes() == rows(1023)[-1].tobytes()


@pytest.fixture
def address(policies: Path, tmp_path: Path, server_factory: ServerFactory) -> str:
    server = server_factory(policies, "--ledger", tmp_path / "ledger.db")
    await_forms(server.socket)
    return server.socket


def test_what_a_client_had_sent_when_it_was_killed_is_in_the_ledger(tmp_path: Path, address: str) -> None:
    hello = b'{"policybridge":1,"policy":"network","evaluate":"here","context":"a.c"}\n'
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.connect(address.removeprefix("socket:"))
        client.sendall(hello)
        assert b'"session"' in answers.readline()
        client.sendall(header_line(SIGNATURE) + context_line("a.c") + told(10) + told(3, seed=2) + told(40, fault=100))

    def over() -> bool:
        with LedgerReader(tmp_path / "ledger.db") as reader:
            return [each.closed is not None for each in reader.sessions() if each.decisions] == [True]

    assert within(PATIENCE, over)
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (session,) = (each for each in reader.sessions() if each.decisions)
        (batch,) = reader.trajectory(session).batches
    assert (session.decisions, session.outcome) == (13, None)
    assert batch.observations.tobytes() == b"".join(row.tobytes() for row in (*rows(10), *rows(3, 2)))


@pytest.mark.parametrize("end", ["outcome", "end"])
def test_what_is_acknowledged_survives_the_kill_of_the_server(
    policies: Path, tmp_path: Path, server_factory: ServerFactory, end: str
) -> None:
    server = server_factory(policies, "--ledger", tmp_path / "ledger.db")
    await_forms(server.socket)
    session = open_forms(server.socket)
    for count in (1, 86, 86, 24):
        session.decided(count, 0, payload(count))
    if end == "outcome":
        session.report(Outcome({"text": 1.0}, "ok"))
        session.decided(5, 0, payload(5))
    else:
        session.finish()
    server.kill()
    session.close()
    with LedgerReader(tmp_path / "ledger.db") as reader:
        read = reader.session(session.id)
        (batch,) = reader.trajectory(read).batches
    assert read.decisions == len(batch) == 197
    assert (read.closed is None) is (end == "outcome")


def test_a_wrong_report_behind_others_costs_itself_and_none_of_them(tmp_path: Path, address: str) -> None:
    session = open_forms(address)
    session.decided(2, 0, payload(2))
    session.decided(3, 0, payload(3)[:-1] + b"\0\0")
    with pytest.raises(InvalidError):
        session.report(Outcome())

    def kept() -> bool:
        with LedgerReader(tmp_path / "ledger.db") as reader:
            return [each.decisions for each in reader.sessions() if each.id == session.id] == [2]

    assert within(PATIENCE, kept)


def test_decisions_of_two_signatures_do_not_join(tmp_path: Path, view: SessionView) -> None:
    other = Signature(SIGNATURE.features, replace(SIGNATURE.advice, name="other"))
    with recorded(tmp_path, view) as recording:
        report(recording, 2)
        recording.bound(other)
        report(recording, 3)
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (session,) = reader.sessions()
        batches = reader.trajectory(session).batches
    assert [(len(batch), batch.signature) for batch in batches] == [(2, SIGNATURE), (3, other)]
