"""Records that a killed server has not acknowledged, on disk until the next client sends them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_client.connection import connect
from policybridge_client.local import LocalSession, decide_here
from policybridge_client.record import MOST_RECORD, Record
from policybridge_client.spool import Spool
from policybridge_core.errors import DeadlineError, NotFoundError, PolicyBridgeError, UnavailableError
from policybridge_serdes import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.interactive import end_line
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.server.ledger.asking import ask, await_forms, open_network, rows, write_policies

VERSION = PolicyVersion("network", 2, "sha256:1")
SERVER = "socket:/server.sock"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep records in a folder of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "policybridge" / "spool"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture
def place() -> Iterator[Path]:
    # Not pytest's own folder: its path may be too long for a Unix socket.
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


@contextmanager
def serving(policies: Path, place: Path) -> Iterator[RunningServer]:
    """Serve on the same addresses each time, with the same ledger."""
    with running_server(policies, place, "--grpc", f"unix:{place}/grpc", "--ledger", place / "ledger.db") as server:
        await_forms(server.socket)
        yield server


def address_of(server: RunningServer, place: Path, transport: str) -> str:
    return server.socket if transport == "socket" else f"grpc:unix:{place}/grpc"


def opened(stack: ExitStack, address: str, spool: Spool | None, exploration: Exploration | None = None) -> LocalSession:
    connection = stack.enter_context(connect(address))
    options = SessionOptions("main.c", {}, {"commit": "1"}, exploration, evaluates=True)
    policy = PolicyReference("network" if exploration is None else "choosing")
    session = decide_here(connection.open(policy, SIGNATURE, options), SIGNATURE, exploration, spool=spool)
    assert isinstance(session, LocalSession)
    stack.callback(session.close)
    return session


def record(number: int, size: int = 100) -> Record:
    made = Record(f"{number:032x}", VERSION, PolicyReference("network"), SessionOptions())
    made.add(b"x" * size)
    return made


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("transport", ["socket", "grpc"])
@pytest.mark.parametrize("before", [0, 700, 1024])
def test_the_record_of_a_killed_server_is_sent_by_the_next_client_and_is_whole(
    policies: Path, place: Path, folder: Path, transport: str, before: int
) -> None:
    asked, spool = rows(1500), Spool()
    with ExitStack() as stack:
        with serving(policies, place) as server:
            with open_network(server.socket) as undisturbed:
                answers = ask(undisturbed, asked)
            local = opened(stack, address_of(server, place, transport), spool)
            made = ask(local, asked[:before])
            local.context("f")
            server.kill()
        made += ask(local, asked[before:])
        with pytest.raises(PolicyBridgeError):
            local.report(Outcome({"text": 128.0}, "ok"))
        local.close()
        assert (spool.counts.kept, len(names(folder))) == (1, 1)
        assert [each.stat().st_mode & 0o777 for each in (folder, *folder.iterdir())] == [0o700, 0o600]
        with serving(policies, place) as server:
            following = opened(stack, address_of(server, place, transport), spool)
            ask(following, asked[:1])
            following.close()
            assert (spool.counts.sent, names(folder)) == (1, [])
    assert made == answers
    with LedgerReader(place / "ledger.db") as reader:
        found = reader.session(local.id)
        batches = list(reader.trajectory(found).batches)
    assert (found.decisions, found.lost, found.interrupted) == (1500, 0, False)
    assert b"".join(batch.observations.tobytes() for batch in batches) == b"".join(row.tobytes() for row in asked)
    assert b"".join(batch.advices.tobytes() for batch in batches) == answers
    contexts = [each for batch in batches for each in batch.contexts.tolist()]
    assert contexts == ["main.c"] * before + ["f"] * (1500 - before)
    assert (found.outcome, found.labels["commit"]) == (Outcome({"text": 128.0}, "ok"), "1")


def recorded(place: Path, session: str) -> tuple[bytes, bytes, list[float]]:
    with LedgerReader(place / "ledger.db") as reader:
        batches = list(reader.trajectory(reader.session(session)).batches)
    observed = b"".join(batch.observations.tobytes() for batch in batches)
    chances = [each for batch in batches for each in batch.log_probabilities.tolist()]
    return observed, b"".join(batch.advices.tobytes() for batch in batches), chances


@pytest.mark.parametrize("before", [0, 1050])
def test_the_record_of_a_session_that_explores_has_its_draws_and_their_chances(
    policies: Path, place: Path, folder: Path, before: int
) -> None:
    asked, spool, exploration = rows(1100), Spool(), Exploration(seed=7, epsilon=0.5)
    with ExitStack() as stack:
        with serving(policies, place) as server:
            await_forms(server.socket, "choosing")
            undisturbed = opened(stack, server.socket, spool, exploration)
            answers = ask(undisturbed, asked)
            undisturbed.close()
            local = opened(stack, server.socket, spool, exploration)
            made = ask(local, asked[:before])
            server.kill()
        made += ask(local, asked[before:])
        local.close()
        with serving(policies, place) as server:
            await_forms(server.socket, "choosing")
            opened(stack, server.socket, spool).close()
    assert made == answers
    assert (spool.counts.sent, names(folder)) == (1, [])
    assert recorded(place, local.id) == recorded(place, undisturbed.id)
    assert len(set(recorded(place, local.id)[2])) > 1


def test_without_a_spool_nothing_is_kept_and_nothing_sent(policies: Path, place: Path, folder: Path) -> None:
    assert Spool().keep(f"socket:{place}/server.sock", record(1))
    with ExitStack() as stack:
        with serving(policies, place) as server:
            opened(stack, server.socket, None).close()
            local = opened(stack, server.socket, None)
            ask(local, rows(1))
            server.kill()
        local.close()
    assert len(names(folder)) == 1


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_a_record_that_its_server_acknowledges_too_late_stands_once(
    policies: Path, place: Path, folder: Path, transport: str
) -> None:
    spool = Spool()
    with serving(policies, place) as server, ExitStack() as stack:
        local = opened(stack, address_of(server, place, transport), spool)
        ask(local, rows(5))
        server.process.send_signal(signal.SIGSTOP)
        local.close()
        server.process.send_signal(signal.SIGCONT)
        assert (spool.counts.kept, len(names(folder))) == (1, 1)
        opened(stack, address_of(server, place, transport), spool).close()
        assert (spool.counts.sent, names(folder)) == (1, [])
    with LedgerReader(place / "ledger.db") as reader:
        found = reader.session(local.id)
    assert (found.decisions, found.lost, found.interrupted) == (5, 0, False)


def test_a_session_that_its_server_has_acknowledged_is_not_kept(policies: Path, place: Path, folder: Path) -> None:
    spool = Spool()
    with ExitStack() as stack:
        with serving(policies, place) as server:
            local = opened(stack, server.socket, spool)
            ask(local, rows(3))
            local.report(Outcome({"text": 1.0}))
            idle = opened(stack, server.socket, spool)
            server.kill()
        local.close()
        idle.close()
    assert names(folder) == []


def test_a_record_that_its_server_refuses_is_removed_and_told_once(
    policies: Path, place: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool()
    assert spool.keep(f"socket:{place}/server.sock", record(1))
    with serving(policies, place) as server, ExitStack() as stack:
        for _ in range(2):
            local = opened(stack, server.socket, spool)
            local.close()
            assert spool.counts.refused == 1
    assert names(folder) == []
    assert len([each for each in caplog.messages if "refuses" in each]) == 1


def sent_by(spool: Spool, server: str, send: Callable[[bytes], None]) -> int:
    before = spool.counts.sent
    spool.send(server, send)
    return spool.counts.sent - before


def refusing(error: PolicyBridgeError, tried: list[bytes]) -> None:
    def send(data: bytes) -> None:
        tried.append(data)
        raise error

    Spool().send(SERVER, send)


def test_a_server_that_is_away_leaves_the_records() -> None:
    spool, tried = Spool(), list[bytes]()
    for number in range(3):
        assert spool.keep(SERVER, record(number))
    refusing(DeadlineError("late"), tried)
    assert len(tried) == 1
    refusing(UnavailableError("still runs"), tried)
    assert len(tried) == 4
    sent = sent_by(spool, SERVER, tried.append)
    assert (sent, len(tried)) == (3, 7)
    refusing(NotFoundError("none left"), tried)
    assert len(tried) == 7


def test_a_record_goes_to_its_own_server_alone() -> None:
    spool, sent = Spool(), list[bytes]()
    spool.keep(SERVER, record(1))
    assert sent_by(spool, "socket:/other.sock", sent.append) == 0
    assert sent_by(spool, SERVER, sent.append) == 1
    assert sent == [record(1).whole()]


def test_a_flood_of_records_stays_within_the_bounds_and_is_sent_in_parts(folder: Path) -> None:
    spool, sent = Spool(), list[bytes]()
    for number in range(400):
        assert spool.keep(SERVER, record(number))
        when = time.time() - 1000 + number
        os.utime(max(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns), (when, when))
    assert len(names(folder)) == 256
    assert 0 < sent_by(spool, SERVER, sent.append) <= 32
    assert sent[0] == record(144).whole()
    for number in range(8):
        assert spool.keep(SERVER, record(1000 + number, MOST_RECORD - 4096))
    assert sum(each.stat().st_size for each in folder.iterdir()) <= 64 << 20


def test_a_record_that_grows_too_long_is_given_up() -> None:
    long = record(1, MOST_RECORD)
    assert long.given_up
    assert not Spool().keep(SERVER, long)


def test_old_records_are_removed(folder: Path) -> None:
    spool = Spool()
    spool.keep(SERVER, record(1))
    (file,) = folder.iterdir()
    os.utime(file, (0, 0))
    spool.keep(SERVER, record(2))
    assert len(names(folder)) == 1


@pytest.mark.parametrize("kind", ["half", "pipe", "link", "folder", "hard link", "too large", "another name"])
def test_what_is_no_whole_record_of_this_user_is_not_sent(folder: Path, tmp_path: Path, kind: str) -> None:
    spool, sent = Spool(), list[bytes]()
    spool.keep(SERVER, record(1))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    if kind == "half":
        file.write_bytes(whole[:-5])
    elif kind == "hard link":
        os.link(file, tmp_path / "another")
    elif kind == "too large":
        with file.open("r+b") as large:
            large.truncate(1 << 40)
            large.seek(-len(end_line()), os.SEEK_END)
            large.write(end_line())
    elif kind == "another name":
        file.rename(folder / f"{file.name}.1")
    else:
        file.unlink()
        (tmp_path / "secret").write_bytes(whole)
        if kind == "link":
            file.symlink_to(tmp_path / "secret")
        else:
            (os.mkfifo if kind == "pipe" else os.mkdir)(file)
    assert sent_by(spool, SERVER, sent.append) == 0
    assert sent == []


@pytest.mark.parametrize("kind", ["writable", "link", "file"])
def test_a_folder_that_is_not_this_users_alone_is_not_used(folder: Path, tmp_path: Path, kind: str) -> None:
    spool, sent = Spool(), list[bytes]()
    spool.keep(SERVER, record(1))
    if kind == "writable":
        folder.chmod(0o777)
    else:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved") if kind == "link" else folder.write_text("")
    assert not spool.keep(SERVER, record(2))
    assert sent_by(spool, SERVER, sent.append) == 0
    assert sent == []


def test_one_client_at_a_time_sends_a_record(folder: Path) -> None:
    spool, sent = Spool(), list[bytes]()
    spool.keep(SERVER, record(1))

    def send(data: bytes) -> None:
        assert sent_by(spool, SERVER, sent.append) == 0
        sent.append(data)

    assert sent_by(spool, SERVER, send) == 1
    assert len(sent) == 1
    assert names(folder) == []
