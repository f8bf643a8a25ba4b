"""One ledger has one writer, whatever it is called; and what is no ledger stays as it is."""

import os
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError
from policybridge_serdes import Outcome
from policybridge_server.ledger import database
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.sqlite import SqliteStore
from tests.conftest import RunningServer, ServerFactory
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.test_bounds import names, session
from tests.server.publishing.policies import wait_for
from tests.server.test_serve import refusal


def link(ledger: Path, other: Path) -> Path:
    other.symlink_to(ledger)
    return other


def hard_link(ledger: Path, other: Path) -> Path:
    other.hardlink_to(ledger)
    return other


def folder_link(ledger: Path, other: Path) -> Path:
    other.symlink_to(ledger.parent)
    return other / ledger.name


def relative(ledger: Path, other: Path) -> Path:
    other.mkdir()
    return other / ".." / ledger.parent.name / ledger.name


def moved(ledger: Path, other: Path) -> Path:
    return ledger.rename(other)


def replaced(ledger: Path, other: Path) -> Path:
    # A new file under the old name would share the first server's log.
    ledger.rename(other)
    return ledger


@pytest.mark.parametrize(
    "name", [link, hard_link, folder_link, relative, moved, replaced], ids=lambda each: each.__name__
)
def test_a_second_writer_is_refused_under_every_name_of_the_ledger(
    tmp_path: Path, name: Callable[[Path, Path], Path]
) -> None:
    (tmp_path / "folder").mkdir()
    ledger = tmp_path / "folder" / "ledger.db"
    first = SqliteStore(ledger, Bounds())
    other = name(ledger, tmp_path / "other")
    with pytest.raises(UnavailableError, match=r"another server writes the ledger .*|has 2 names \(hard links\)"):
        SqliteStore(other, Bounds())
    if name in (moved, replaced):
        with pytest.raises(UnavailableError, match="was removed, renamed or replaced while it is written"):
            first.write(session("one", 1.0))
    else:
        first.write(session("one", 1.0))
    first.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_outcome_is_acknowledged_while_the_ledger_lies_elsewhere_and_nothing_is_lost_once_it_is_back(
    workers: int, policies: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    ledger = tmp_path / "ledger.db"
    server = server_factory(policies, "--ledger", ledger, "--workers", workers)
    first = reported(server)
    ledger.rename(tmp_path / "elsewhere.db")
    with closing(open_network(server.socket)) as waiting:
        ask(waiting, rows(3))
        with pytest.raises(UnavailableError, match=r"the ledger cannot be written now; .* is written later"):
            waiting.report(Outcome({"text": 7.0}, "ok"))
    (tmp_path / "elsewhere.db").rename(ledger)

    def is_taken() -> bool:
        with suppress(UnavailableError), closing(connect(server.socket)) as connection:
            connection.report_outcome(waiting.id, Outcome({}, "ok"))
            return True
        return False

    wait_for(is_taken)
    server.kill()
    with LedgerReader(ledger) as reader:
        assert [reader.session(each).decisions for each in (first, waiting.id)] == [3, 3]
        assert reader.session(waiting.id).outcome == Outcome({"text": 7.0}, "ok"), "it was written later, as was said"


def reported(server: RunningServer) -> str:
    """Ask three times, report, and give the session's id."""
    with closing(open_network(server.socket)) as opened:
        ask(opened, rows(3))
        opened.report(Outcome({}, "ok"))
        return opened.id


def test_a_second_server_through_a_link_is_refused(policies: Path, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    (tmp_path / "link.db").symlink_to("ledger.db")
    said = refusal("--repository", policies, "--socket", tmp_path / "s", "--ledger", tmp_path / "link.db")
    assert f"another server writes the ledger {tmp_path / 'link.db'}" in said
    store.close()


def test_a_ledger_with_two_names_is_refused_because_its_log_has_but_one(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "ledger.db", Bounds()).close()
    (tmp_path / "other.db").hardlink_to(tmp_path / "ledger.db")
    for opened in (lambda path: SqliteStore(path, Bounds()), LedgerReader):
        with pytest.raises(UnavailableError, match="2 names"):
            opened(tmp_path / "other.db")


def test_a_ledger_is_made_through_a_link_to_a_file_that_is_not_there_yet_or_is_empty(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("ledger.db")
    (tmp_path / "empty.db").touch(mode=0o600)
    for name in ("link.db", "empty.db"):
        store = SqliteStore(tmp_path / name, Bounds())
        store.write(session("one", 1.0))
        store.close()
        assert names(tmp_path / name) == ["one"]
    assert (tmp_path / "link.db").is_symlink()
    assert (tmp_path / "empty.db").stat().st_mode & 0o777 == 0o600


def somebody_elses(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("CREATE TABLE sessions (name TEXT)")
        other.execute("INSERT INTO sessions VALUES ('mine')")
        other.commit()


def anothers(path: Path) -> None:
    somebody_elses(path, "DELETE")


def anothers_with_a_log(path: Path) -> None:
    somebody_elses(path, "WAL")


def an_applications(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 42")
        other.execute("CREATE TABLE anything (name TEXT)")


def of_the_future(path: Path) -> None:
    SqliteStore(path, Bounds()).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 2")
    path.with_name(f"{path.name}-lock").unlink()


def a_text(path: Path) -> None:
    path.write_text("this is no database, and longer than the header of one" * 10)


def short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (anothers, "a SQLite file without a ledger's table"),
        (anothers_with_a_log, "a SQLite file without a ledger's table"),
        (an_applications, "the SQLite file of another application"),
        (of_the_future, "is of format 2; this version of PolicyBridge uses 1"),
        (a_text, "it is no SQLite file"),
        (short, "it is no SQLite file"),
        (Path.mkdir, "it is a folder"),
        (os.mkfifo, "no regular file"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_no_ledger_is_refused_and_not_changed(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "file")
    before = {each.name: (each.stat(), each.is_file() and each.read_bytes()) for each in tmp_path.iterdir()}
    for opened in (lambda path: SqliteStore(path, Bounds()), LedgerReader):
        with pytest.raises(PolicyBridgeError, match=said):
            opened(tmp_path / "file")
    after = {each.name: (each.stat(), each.is_file() and each.read_bytes()) for each in tmp_path.iterdir()}
    unread = {name: (found.st_mtime_ns, found.st_size, data) for name, (found, data) in before.items()}
    assert {name: (found.st_mtime_ns, found.st_size, data) for name, (found, data) in after.items()} == unread


def test_what_a_kill_left_of_a_ledger_in_the_making_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "ledger.db-new").write_bytes(b"half")
    (tmp_path / "ledger.db-wal").write_bytes(b"of a file that was removed")
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    store.write(session("one", 1.0))
    store.close()
    assert {each.name for each in tmp_path.iterdir()} == {"ledger.db", "ledger.db-lock"}
    assert names(tmp_path / "ledger.db") == ["one"]


def read_or_told(ledger: Path) -> int:
    """Give the number of decisions, or -1 where the reader says that the ledger is damaged."""
    with suppress(InvalidError), LedgerReader(ledger) as reader:
        return sum(len(batch) for batch in reader.batches())
    return -1


def test_a_ledger_whose_pages_were_overwritten_is_told_as_damaged(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    store = SqliteStore(ledger, Bounds())
    for n in range(20):
        store.write(session(f"s{n}", 1.0))
    store.close()
    whole = ledger.read_bytes()
    told = 0
    for page in range(1, len(whole) // 4096, 7):
        ledger.write_bytes(whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :])
        # Or else the page holds nothing that is read.
        found = read_or_told(ledger)
        assert found in (20 * 256, -1)
        told += found == -1
    assert told > 10
    ledger.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(InvalidError, match=r"damaged: parts of the file were overwritten .* put back a copy"):
        SqliteStore(ledger, Bounds())


@pytest.mark.parametrize(("column", "value"), [("count", 50_000_000), ("observations", 5)])
def test_a_ledger_with_a_damaged_row_is_told_as_damaged_and_takes_no_memory(
    tmp_path: Path, column: str, value: int
) -> None:
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    store.write(session("one", 1.0))
    store.close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database, database:
        database.execute(f"UPDATE segments SET {column} = ?", (value,))
    tracemalloc.start()
    assert read_or_told(tmp_path / "ledger.db") == -1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_program_that_holds_the_ledger_locked_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY", 0.1)
    store = SqliteStore(tmp_path / "ledger.db", Bounds())
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="another program holds it locked"):
            store.write(session("one", 1.0))
        other.execute("ROLLBACK")
    store.write(session("one", 1.0))
    store.close()
    assert names(tmp_path / "ledger.db") == ["one"]
