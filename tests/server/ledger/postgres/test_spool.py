"""The database's loss: what was acknowledged is in it once, when it is back."""

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import NotFoundError, PolicyBridgeError, UnavailableError
from policybridge_serdes import Outcome
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres import drain
from policybridge_server.ledger.postgres.sender import Sender
from policybridge_server.ledger.postgres.store import PostgresStore
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import Reported
from policybridge_server.ledger.rows import Packer
from policybridge_server.ledger.spool import Batch, open_spool
from tests.conftest import ServerFactory
from tests.postgres_soak.cluster import Postgres
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.test_bounds import session
from tests.server.ledger.test_writer import files_of_at_most
from tests.server.workers.fleet import workers

PATIENCE = 60.0


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Postgres]:
    """Give a cluster that a test may stop, and that runs again after it."""
    yield postgres
    if postgres.process is None:
        postgres.start()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def store(url: str, folder: Path) -> PostgresStore:
    return PostgresStore(DatabaseUrl(url), Bounds(), folder / "spool")


def held(url: str) -> dict[str, tuple[int, float | None]]:
    """Give the decisions of each session that can really be read, and its outcome ``x``."""
    with LedgerReader(url) as reader:
        found = {}
        for each in reader.trajectories():
            count = sum(map(len, each.batches))
            # A session may grow between the reading of its row and that of its decisions.
            assert count >= each.session.decisions
            outcome = each.session.outcome
            found[each.session.id] = count, outcome.values.get("x") if outcome else None
        return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_is_acknowledged_while_the_database_is_away_is_there_once_it_is_back(
    database: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    url = database.create()
    with closing(store(url, tmp_path)) as writing:
        begun, segment, ended, reported = session("across", 1.0)
        assert writing.write([begun, segment]) == {}
        database.stop(number)
        assert writing.write([reported]) == {}
        assert writing.write(session("during", 2.0)) == {}
        (error,) = writing.write([Reported("of another server", Outcome({"x": 1}), 3.0)]).values()
        assert isinstance(error, UnavailableError)
        assert "report the outcome again later" in str(error)
        assert writing.away
        assert writing.spooled_bytes > 80_000
        database.start()
        assert within(PATIENCE, lambda: not writing.away)
        assert writing.write([ended, Reported("across", Outcome({"x": 7}), 4.0)]) == {}
        (error,) = writing.write([Reported("of another server", Outcome({"x": 1}), 3.0)]).values()
        assert isinstance(error, NotFoundError)
    assert held(url) == {"across": (256, 7.0), "during": (256, 1.0)}
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2, "once when it goes, once when it is back"
    assert "records wait in the spool" in said[0]
    assert "can be written again" in said[1]


def test_a_server_starts_while_the_database_is_away_and_sends_what_another_left(
    database: Postgres, tmp_path: Path
) -> None:
    url = database.create()
    database.stop()
    with closing(store(url, tmp_path)) as first:
        assert first.write(session("one", 1.0, over=False)) == {}
    with closing(store(url, tmp_path)) as second:
        assert second.write(session("two", 2.0)) == {}
        database.start()
        assert within(PATIENCE, lambda: second.spooled_bytes == 0)
    assert held(url) == {"one": (256, 1.0), "two": (256, 1.0)}
    with LedgerReader(url) as reader:
        assert reader.session("one").interrupted


def test_a_batch_whose_commit_had_no_answer_is_not_added_again(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.create()
    spool = open_spool(tmp_path / "spool", "x")
    for n in range(3):
        spool.append([Packer().pack(record) for record in session(f"s{n}", n)])
    batches = spool.oldest(1 << 30)
    with closing(Sender(DatabaseUrl(url), Bounds(), spool.writer)) as sender:
        assert sender.send(batches[:2]) == {}
        # The server was killed before it removed them.
        assert sender.send(batches) == {}
    with closing(Sender(DatabaseUrl(url), Bounds(), "another")) as sender:
        assert sender.send(batches) == {}
    spool.close()
    assert held(url) == {"s0": (256, 1.0), "s1": (256, 1.0), "s2": (256, 1.0)}
    assert postgres.run(url, "SELECT count(*) FROM policybridge.outcomes") == [(3,)]


def test_batches_wait_for_a_lost_connection_that_is_still_committing_some_of_them(
    postgres: Postgres,
) -> None:
    url = postgres.create()
    with closing(Sender(DatabaseUrl(url), Bounds(), "w")) as sender, ThreadPoolExecutor(1) as pool:
        batches = [Batch.of(n, "w", [Packer().pack(record) for record in session(f"s{n}", n)]) for n in range(1, 5)]
        sender.send(batches[:1])
        with psycopg.connect(url) as lost:
            lost.execute("UPDATE policybridge.writers SET batch = 2 WHERE id = 'w'")
            sent = pool.submit(sender.send, batches[1:])
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            assert within(PATIENCE, lambda: postgres.run(url, waits) == [(1,)])
        assert sent.result(PATIENCE) == {}
    assert set(held(url)) == {"s1", "s3", "s4"}, "the other connection wrote the second one"


def test_the_spool_of_a_server_that_is_gone_is_drained_by_another(
    database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_ADOPT", 0.1)
    url = database.create()
    with closing(store(url, tmp_path)) as stays:
        database.stop()
        with closing(store(url, tmp_path)) as gone:
            gone.write(session("left", 1.0))
        copied = tmp_path / "copied"
        shutil.copytree(tmp_path / "spool", copied)
        database.start()
        assert within(PATIENCE, lambda: "left" in held(url))
        assert stays.write([Reported("left", Outcome({"x": 2}), 3.0)]) == {}
    # A copy of the spool, as of a machine that was cloned, adds nothing.
    with closing(PostgresStore(DatabaseUrl(url), Bounds(), copied)) as clone:
        assert within(PATIENCE, lambda: clone.spooled_bytes == 0)
        assert clone.write(session("clone", 2.0)) == {}
    assert held(url) == {"left": (256, 2.0), "clone": (256, 1.0)}


def test_a_database_that_does_not_answer_holds_up_no_acknowledgement_for_long(
    database: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = database.create()
    with closing(store(url, tmp_path)) as writing:
        writing.write(session("before", 1.0))
        (backend,) = database.run(url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'policybridge'")
        os.kill(backend[0], signal.SIGSTOP)
        try:
            assert writing.write(session("during", 2.0)) == {}
            assert writing.away
            assert writing.write(session("next", 3.0)) == {}, "this one does not wait at all"
        finally:
            os.kill(backend[0], signal.SIGCONT)
        assert within(PATIENCE, lambda: not writing.away)
    assert "does not answer within 1 s" in caplog.text
    assert set(held(url)) == {"before", "during", "next"}


def test_a_spool_that_cannot_be_made_is_told_with_the_option_that_names_another(
    postgres: Postgres, tmp_path: Path
) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(UnavailableError, match=r"cannot be used.*--ledger-spool DIR"):
        store(postgres.create(), tmp_path)


def test_what_servers_acknowledged_is_there_after_kills_of_the_database_and_of_a_server(
    database: Postgres, policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    url = database.create()
    given = "--ledger", url, "--ledger-spool", tmp_path / "spool"
    first, second = server_factory(policies, *given), server_factory(policies, *given)
    across, other = open_network(first.grpc), open_network(second.socket)
    ask(across, rows(20))
    ask(other, rows(30))
    other.report(Outcome({"x": 0}))
    across.report(Outcome({"x": 1}))
    # Any server takes the outcome of a session.
    with closing(connect(second.grpc)) as connection:
        connection.report_outcome(across.id, Outcome({"x": 2}))
    database.stop(signal.SIGKILL)
    ask(across, rows(20))
    across.report(Outcome({"x": 3}))
    during = open_network(first.socket)
    ask(during, rows(40))
    during.report(Outcome({"x": 4}, "ok"))
    first.kill()
    for ended in (across, during):
        with suppress(PolicyBridgeError):
            ended.close()
    ask(other, rows(5))
    other.report(Outcome({"x": 5}))
    other.close()
    database.start()
    server_factory(policies, *given)
    found = {across.id: (40, 3.0), during.id: (40, 4.0), other.id: (35, 5.0)}
    assert within(PATIENCE, lambda: held(url) == found)
    with LedgerReader(url) as reader:
        assert within(PATIENCE, lambda: reader.session(during.id).interrupted)
        assert within(PATIENCE, lambda: reader.session(other.id).closed is not None)


def test_a_full_spool_refuses_outcomes_and_when_there_is_room_all_is_written_once(
    database: Postgres, policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    url = database.create()
    server = server_factory(policies, "--ledger", url, "--ledger-spool", tmp_path / "spool")
    opened = open_network(server.socket)
    ask(opened, rows(1))
    opened.report(Outcome({"x": 1}))
    database.stop()
    opened.report(Outcome({"x": 2}))
    (log,) = (tmp_path / "spool").glob("*.db-wal")
    with files_of_at_most(server, log.stat().st_size + 20_000):
        ask(opened, rows(500) * 4)
        with pytest.raises(UnavailableError, match="the ledger cannot be written now"):
            opened.report(Outcome({"x": 3}))
    database.start()
    assert within(PATIENCE, lambda: held(url)[opened.id][0] == 2001)
    with closing(connect(server.socket)) as connection:
        connection.report_outcome(opened.id, Outcome({"x": 4}))
    assert within(PATIENCE, lambda: held(url) == {opened.id: (2001, 4.0)})


def test_workers_of_one_server_write_one_database_and_lose_nothing_when_they_are_killed(
    database: Postgres, policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    url = database.create()
    server = server_factory(policies, "--ledger", url, "--ledger-spool", tmp_path / "spool", "--workers", 2)
    opened = [open_network(server.grpc) for _ in range(6)]
    for each in opened:
        ask(each, rows(10))
        each.report(Outcome({"x": 1}))
    database.stop(signal.SIGKILL)
    for each in opened:
        ask(each, rows(10))
        each.report(Outcome({"x": 2}))
    for process in workers(server):
        os.kill(process, signal.SIGKILL)
    database.start()
    assert within(PATIENCE, lambda: held(url) == {each.id: (20, 2.0) for each in opened})

    def interrupted() -> set[str]:
        with LedgerReader(url) as reader:
            return {each.id for each in reader.sessions() if each.interrupted}

    assert within(PATIENCE, lambda: interrupted() == {each.id for each in opened})
    for each in opened:
        with suppress(PolicyBridgeError):
            each.close()
