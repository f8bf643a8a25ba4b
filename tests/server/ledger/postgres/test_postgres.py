"""The database itself: its format, its partitions, passwords, and readers."""

from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from policybridge_client.cli import main
from policybridge_client.llvm.replay_command import load_recorded
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError, UnavailableError
from policybridge_serdes import Outcome
from policybridge_server.config import ServerConfig
from policybridge_server.ledger.contract import Bounds, DroppedError, load_ledger
from policybridge_server.ledger.place import DatabaseUrl, check_shown, parse_place
from policybridge_server.ledger.postgres import migrations
from policybridge_server.ledger.postgres.store import DirectStore
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import Ended, Reported
from policybridge_server.ledger.spool import default_spool
from policybridge_server.ledger.sqlite import SqliteStore
from policybridge_server.page.records import Records
from tests.conftest import ServerFactory
from tests.postgres_soak.cluster import PASSWORD, Postgres
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.clocks import SettableClock
from tests.server.ledger.test_bounds import session
from tests.server.test_serve import refusal

DAY = 86400.0


def sessions(what: str, ledger: object, *words: object) -> str:
    """Run ``policybridge sessions``, and give what it prints."""
    out = StringIO()
    with redirect_stdout(out):
        assert main(["sessions", what, "--ledger", *map(str, (ledger, *words))]) == 0
    return out.getvalue()


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.create()


def direct(url: str, **bounds: float) -> DirectStore:
    return DirectStore(DatabaseUrl(url), Bounds(**bounds))  # type: ignore[arg-type]


def names(url: str) -> list[str]:
    with LedgerReader(url) as reader:
        return [each.id for each in reader.sessions()]


def pruned(store: DirectStore) -> None:
    while store.prune():
        pass


def pass_time(postgres: Postgres, url: str, seconds: float) -> None:
    """Let the ledger have lived for longer."""
    postgres.run(url, f"UPDATE policybridge.partitions SET born = born - {seconds}")


def test_an_age_drops_the_oldest_partitions_and_of_one_with_open_sessions_the_others(
    postgres: Postgres, url: str
) -> None:
    with closing(direct(url, age=7 * DAY)) as store:
        store.write([*session("open", 1.0, over=False), *session("old", 1.0)])
        for day in range(3):
            pass_time(postgres, url, DAY)
            pruned(store)
            store.write(session(f"day{day}", 2.0))
        assert names(url) == ["open", "old", "day0", "day1", "day2"]
        pass_time(postgres, url, 6 * DAY)
        pruned(store)
        assert names(url) == ["open", "day1", "day2"]
        pass_time(postgres, url, 9 * DAY)
        store.write([Ended("open", 9.0), *session("new", 9.0)])
        pruned(store)
        assert names(url) == ["new"]
        (error,) = store.write([Reported("old", Outcome({"x": 1}), 9.0)]).values()
        assert isinstance(error, NotFoundError)
    tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'segments_p_' AND relkind = 'r'"
    assert postgres.run(url, tables) <= [(2,)]


def test_a_database_whose_clock_jumps_drops_nothing(postgres: Postgres, url: str) -> None:
    clock = SettableClock()
    with closing(DirectStore(DatabaseUrl(url), Bounds(age=DAY, clock=clock))) as store:
        store.write(session("kept", 1.0))
        store.prune()
        for jump in ("- interval '1 year'", "+ interval '1 year'"):
            postgres.run(url, f"UPDATE policybridge.lifetime SET seen = seen {jump}")
            clock.wait(5)
            pruned(store)
            store.write(session(f"after {jump}", 2.0))
        pruned(store)
    assert len(names(url)) == 3


def test_bytes_drop_the_oldest_partitions(url: str) -> None:
    with closing(direct(url, bytes=3 << 20)) as store:
        for n in range(60):
            store.write(session(f"s{n:03}", n, over=n > 0))
            pruned(store)
    kept = names(url)
    assert kept[0] == "s000", "it is still open"
    assert kept[1:] == [f"s{n:03}" for n in range(61 - len(kept), 60)]
    assert 5 < len(kept) < 50


NEWEST = "SELECT max(number) FROM policybridge.partitions"


@pytest.mark.parametrize(("most", "part"), [(16 << 20, 2 << 20), (1 << 20, 1 << 20)], ids=["large", "small"])
def test_a_partition_takes_an_eighth_of_the_bytes_and_at_least_a_mebibyte(
    postgres: Postgres, url: str, most: int, part: int
) -> None:
    size = (
        "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
        " WHERE schemaname = 'policybridge' AND relname LIKE '%_p1'"
    )
    held = [0]
    with closing(direct(url, bytes=most)) as store:
        for number in range(100):
            store.write(session(f"s{number:03}", 1.0))
            ((found,),) = postgres.run(url, size)
            held.append(int(found))
            store.prune()
            if postgres.run(url, NEWEST) == [(2,)]:
                break
    assert held[-2] <= part < held[-1]


def test_a_partition_spans_an_eighth_of_the_age(postgres: Postgres, url: str) -> None:
    hour = 3600.0
    with closing(direct(url, age=8 * hour)) as store:
        store.write(session("one", 1.0))
        pass_time(postgres, url, 0.9 * hour)
        pruned(store)
        assert postgres.run(url, NEWEST) == [(1,)]
        pass_time(postgres, url, 0.2 * hour)
        pruned(store)
        assert postgres.run(url, NEWEST) == [(2,)]


def test_the_sessions_of_a_process_that_is_gone_are_marked_by_the_end_of_their_ids(
    postgres: Postgres, url: str
) -> None:
    with closing(direct(url)) as store:
        store.write([*session("a-m1", 1.0, over=False), *session("b-m1", 1.0), *session("c-m2", 1.0, over=False)])
        postgres.stop()
        with pytest.raises(UnavailableError):
            store.interrupt("-m1")
        postgres.start()
        store.interrupt("-m1")
    with LedgerReader(url) as reader:
        assert [each.interrupted for each in reader.sessions()] == [True, False, False]


def test_a_session_that_is_dropped_before_it_is_read_is_an_error(postgres: Postgres, url: str) -> None:
    with closing(direct(url, age=DAY)) as store:
        store.write(session("s", 1.0))
        with LedgerReader(url) as reader:
            found = reader.session("s")
            for _ in range(2):
                pass_time(postgres, url, 2 * DAY)
                pruned(store)
            assert names(url) == []
            with pytest.raises(DroppedError, match="was dropped from the ledger"):
                reader.trajectory(found)


def test_tables_of_an_earlier_version_are_brought_to_this_one_and_those_of_a_newer_one_are_refused(
    postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(direct(url)) as store:
        store.write(session("old", 1.0))
    added = "ALTER TABLE sessions ADD COLUMN added integer DEFAULT 5"
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, added))
        with pytest.raises(UnavailableError, match="is of format 3, and this version of PolicyBridge reads 4"):
            LedgerReader(url)
        for _ in range(2):
            with closing(direct(url)) as store:
                store.write([])
        assert names(url) == ["old"]
        assert postgres.run(url, "SELECT added FROM policybridge.sessions") == [(5,)]
    for opened in (lambda: direct(url).write([]), lambda: LedgerReader(url)):
        with pytest.raises(UnavailableError, match="is of format 4; this version of PolicyBridge knows those up to 3"):
            opened()


def test_who_may_only_read_reads_and_cannot_write(postgres: Postgres, url: str) -> None:
    with closing(direct(url)) as store:
        store.write(session("s", 1.0))
    postgres.run(url, "CREATE ROLE reader LOGIN")
    postgres.run(url, "GRANT USAGE ON SCHEMA policybridge TO reader")
    postgres.run(url, "GRANT SELECT ON ALL TABLES IN SCHEMA policybridge TO reader")
    own = url.replace("postgres@", "reader@")
    assert names(own) == ["s"]
    with pytest.raises(UnavailableError, match="permission denied"), closing(direct(own)) as store:
        store.write(session("t", 1.0))
    other = postgres.create().replace("postgres@", "reader@")
    with pytest.raises(UnavailableError, match="permission denied"):
        direct(other).write([])


def test_a_reader_goes_on_when_the_database_was_restarted(postgres: Postgres, url: str) -> None:
    with closing(direct(url)) as store:
        store.write(session("s", 1.0))
    with LedgerReader(url) as reader:
        found = reader.session("s")
        postgres.stop()
        with pytest.raises(UnavailableError):
            reader.trajectory(found)
        postgres.start()
        assert len(reader.trajectory(found).batches[0]) == 256


@pytest.fixture
def no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))


@pytest.mark.usefixtures("no_password")
def test_a_password_is_taken_from_the_environment_and_is_shown_nowhere(  # noqa: PLR0917
    postgres: Postgres,
    url: str,
    policies: Path,
    tmp_path: Path,
    server_factory: ServerFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database = url.partition("@/")[2].partition("?")[0]
    shown, wrong = postgres.tcp_url(database), postgres.tcp_url(database, "wr0ng")
    right = postgres.tcp_url(database, "s3cret%2Fwith%3Aodd%40signs")
    given = "--repository", policies, "--socket", tmp_path / "s", "--ledger-spool", tmp_path / "spool"
    assert main(["serve", *map(str, given), "--ledger", wrong]) == 2
    said = capfd.readouterr().err
    assert "has a password, which `ps` shows" in said
    (tmp_path / "config.toml").write_text(f'ledger = "{wrong}"')
    said += refusal(*given, "--config", tmp_path / "config.toml")
    assert f"the ledger {shown} cannot be used" in said
    assert "authentication failed" in said
    assert "wr0ng" not in said
    (tmp_path / "config.toml").write_text(f'ledger = "{right}"')
    server = server_factory(
        policies, "--config", tmp_path / "config.toml", "--ledger-spool", tmp_path / "spool", "--verbose"
    )
    asked = open_network(server.grpc)
    ask(asked, rows(1))
    asked.close()
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert asked.id in sessions("list", shown, "--json")
    records = Records(ServerConfig(repository=[str(policies)], socket=["s"], ledger=right))
    assert records.ledger()["path"] == shown
    assert records.ledger()["totals"]["decisions"] == 1
    assert records.ledger()["bytes"] > 100_000
    command = Path(f"/proc/{server.process.pid}/cmdline").read_text()
    logged = "".join(capfd.readouterr())
    assert "s3cret" not in command + logged + repr(parse_place(right)) + str(parse_place(right))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h:1/d?sslmode=require&password=p", "postgresql://u@h:1/d"),
        ("postgres:///d?host=/run/x&sslpassword=p", "postgresql:///d?host=/run/x"),
        ("POSTGRESQL://h/d", None),
        ("postgresql://u:p@q@h/d", None),
        ("postgresql://u:p/q@h/d", None),
        ("postgresql://u:p#q@h/d", None),
        ("postgresql://u:p q@h/d", None),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(text: str, shown: str | None) -> None:
    with pytest.raises(InvalidError) as raised:
        check_shown(text)
    assert not any(part in str(raised.value) for part in (":p@", "=p", "p q", "p#q", "p/q"))
    if shown is not None:
        assert str(parse_place(text)) == shown


def test_the_spool_is_in_the_state_folder_of_the_service_or_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/u/state")
    assert default_spool() == Path("/home/u/state/policybridge/spool")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/policybridge:/var/lib/other")
    assert default_spool() == Path("/var/lib/policybridge/spool")


def test_a_kind_that_is_at_no_such_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="is no place of a ledger of the kind 'sqlite'"):
        load_ledger(parse_place("postgresql://h/d"), "sqlite")
    with pytest.raises(InvalidError, match="kind 'postgresql', but of the kind 'sqlite'"):
        LedgerReader(tmp_path / "ledger.db", "postgresql")


def test_several_ledgers_are_read_as_one(url: str, tmp_path: Path) -> None:
    for n, name in enumerate(["a 1.db", "a 2.db"]):
        with closing(SqliteStore(tmp_path / name, Bounds())) as store:
            store.write([*session(f"first{n}", 10.0 + n), *session(f"second{n}", 20.0 - n)])
    with closing(direct(url)) as store:
        store.write(session("database", 15.0))
    with LedgerReader([tmp_path / "a 1.db", str(tmp_path / "a 2.db"), url]) as reader:
        found = list(reader.sessions())
        assert [each.id for each in found] == ["first0", "first1", "database", "second1", "second0"]
        assert [each.session.id for each in reader.trajectories()] == [each.id for each in found]
        assert {index for batch in reader.batches(size=600) for index in batch.session.tolist()} == {0, 1, 2}
        assert reader.context_outcomes(found[1]) == {}
        assert len(reader.trajectory(reader.session("database")).batches[0]) == 256
    listed = sessions("list", tmp_path / "a*.db", "--ledger", url)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [each.id for each in found]
    with pytest.raises(UnavailableError):
        LedgerReader([url, tmp_path / "none.db"])


def test_a_log_is_imported_into_a_database_and_a_session_is_replayed_from_it(url: str, tmp_path: Path) -> None:
    with closing(direct(url)) as store:
        store.write(session("s", 1.0))
    sessions("export", url, "--to", tmp_path / "s.log", "--score", "x")
    assert "1 sessions with 256 decisions" in sessions("import", url, tmp_path / "s.log")
    assert len(names(url)) == 2
    with pytest.raises(PreconditionError, match="has no label 'compilation'"):
        load_recorded(url, "s")
