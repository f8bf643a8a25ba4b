"""A clock that is set back or forward: the sessions that began first go first, and none goes before its time."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.sqlite import SqliteStore
from tests.server.ledger.clocks import SettableClock
from tests.server.ledger.test_bounds import names, pruned, session

YEAR = 365 * 86400.0
HOUR = 3600.0


@contextmanager
def opened(
    ledger: Path, clock: SettableClock, age: float | None = HOUR, size: int | None = None
) -> Iterator[SqliteStore]:
    store = SqliteStore(ledger, Bounds(size, age, clock))
    yield store
    store.close()


def record(store: SqliteStore, clock: SettableClock, *names: str) -> None:
    for name in names:
        store.write(session(name, clock.now().wall))


@pytest.mark.parametrize("jump", [-YEAR, -1.0, YEAR])
def test_what_exceeds_the_bytes_goes_in_the_order_of_its_beginning_however_the_clock_is_set(
    tmp_path: Path, jump: float
) -> None:
    ledger, clock = tmp_path / "ledger.db", SettableClock()
    with opened(ledger, clock, age=None, size=2 << 20) as store:
        record(store, clock, *(f"old{n:02}" for n in range(20)))
        clock.put(jump)
        record(store, clock, *(f"young{n:02}" for n in range(20)))
        pruned(store)
    kept = names(ledger)
    assert 10 < len(kept) < 30
    assert kept == [*(f"old{n:02}" for n in range(20)), *(f"young{n:02}" for n in range(20))][-len(kept) :]


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_a_session_is_too_old_after_the_seconds_that_passed_and_not_by_the_time_of_day(
    tmp_path: Path, jump: float
) -> None:
    ledger, clock = tmp_path / "ledger.db", SettableClock()
    with opened(ledger, clock) as store:
        record(store, clock, "old")
        clock.put(jump)
        clock.wait(0.6 * HOUR)
        record(store, clock, "young")
        pruned(store)
        assert names(ledger) == ["old", "young"]
        clock.wait(0.6 * HOUR)
        pruned(store)
        assert names(ledger) == ["young"]
        clock.put(-jump)
        pruned(store)
        assert names(ledger) == ["young"]


def restarted(clock: SettableClock) -> None:
    clock.put(-YEAR)
    clock.wait(0.6 * HOUR)


def rebooted(clock: SettableClock) -> None:
    clock.reboot(0.6 * HOUR)


def rebooted_into_the_past(clock: SettableClock) -> None:
    clock.reboot(-YEAR)


@pytest.mark.parametrize("meanwhile", [restarted, rebooted, rebooted_into_the_past], ids=lambda each: each.__name__)
def test_the_ages_go_on_over_a_restart(tmp_path: Path, meanwhile: Callable[[SettableClock], None]) -> None:
    ledger, clock = tmp_path / "ledger.db", SettableClock()
    with opened(ledger, clock) as store:
        record(store, clock, "old")
    meanwhile(clock)
    with opened(ledger, clock) as store:
        pruned(store)
        assert names(ledger) == ["old"]
        clock.wait(1.1 * HOUR if meanwhile is rebooted_into_the_past else 0.5 * HOUR)
        record(store, clock, "young")
        pruned(store)
    assert names(ledger) == ["young"]


def test_the_time_until_a_kill_counts_although_the_clock_was_set_back_before_the_machine_restarted(
    tmp_path: Path,
) -> None:
    ledger, left, clock = tmp_path / "ledger.db", tmp_path / "left", SettableClock()
    with opened(ledger, clock) as store:
        record(store, clock, "old")
        clock.wait(0.6 * HOUR)
        clock.put(-YEAR)
        pruned(store)
        # A kill leaves the files as they are now.
        left.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{ledger}{suffix}", left)
    clock.reboot(0.6 * HOUR)
    with opened(left / "ledger.db", clock) as store:
        pruned(store)
    assert names(left / "ledger.db") == []


def test_a_ledger_of_an_earlier_version_is_taken_with_the_ages_that_its_stamps_tell(tmp_path: Path) -> None:
    ledger, clock = tmp_path / "ledger.db", SettableClock()
    with opened(ledger, clock, age=None) as store:
        for name, ago in (
            ("ancient", 2 * HOUR),
            ("of a wrong clock", -YEAR),
            ("old", 0.9 * HOUR),
            ("young", 0.1 * HOUR),
        ):
            store.write(session(name, clock.now().wall - ago))
    with closing(sqlite3.connect(ledger)) as database:
        for table in ("births", "lifetime", "dropped"):
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA application_id = 0")
    with opened(ledger, clock) as store:
        pruned(store)
        assert names(ledger) == ["of a wrong clock", "old", "young"]
        clock.wait(0.2 * HOUR)
        pruned(store)
    assert names(ledger) == ["young"]
