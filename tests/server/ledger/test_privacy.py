"""A ledger holds sources' names and observations: its files are for the server's user alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.spool import open_spool
from policybridge_server.ledger.sqlite import SqliteStore
from tests.server.ledger.test_bounds import session

NOBODY = 65534
DAEMON = 1

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to somebody else")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def written(path: Path) -> SqliteStore:
    store = SqliteStore(path, Bounds())
    store.write(session("one", 1.0))
    return store


def modes(folder: Path) -> dict[str, str]:
    return {each.name: f"{stat.S_IMODE(each.stat().st_mode):04o}" for each in folder.iterdir()}


def test_all_files_of_a_new_ledger_are_closed_to_others(tmp_path: Path) -> None:
    store = written(tmp_path / "ledger.db")
    suffixes = ("", "-wal", "-shm", "-lock")
    assert modes(tmp_path) == {f"ledger.db{suffix}": "0600" for suffix in suffixes}
    store.close()


def test_a_spool_in_a_folder_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, "spool")
    assert set(modes(tmp_path).values()) == {"0600"}
    spool.close()


def test_the_mode_that_an_operator_gives_a_ledger_stays(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    written(ledger).close()
    ledger.chmod(0o640)
    store = written(ledger)
    assert modes(tmp_path)["ledger.db"] == modes(tmp_path)["ledger.db-wal"] == "0640"
    store.close()


def test_a_ledger_that_others_may_write_is_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    written(ledger).close()
    ledger.chmod(0o606)
    with pytest.raises(UnavailableError, match=r"every user may write .*ledger\.db: chmod o-w"):
        written(ledger)


@as_root
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", "-lock"])
@pytest.mark.parametrize("planted", [Path.touch, lambda path: path.symlink_to("/dev/null")], ids=["file", "link"])
def test_a_file_of_a_ledger_that_another_user_planted_is_refused(tmp_path: Path, suffix: str, planted: object) -> None:
    ledger = tmp_path / "ledger.db"
    other = tmp_path / f"ledger.db{suffix}"
    planted(other)  # type: ignore[operator]
    os.chown(other, DAEMON, DAEMON, follow_symlinks=False)
    with pytest.raises(UnavailableError, match=rf"{other.name}.*belongs to another user|is no regular file"):
        written(ledger)


@as_root
def test_a_ledger_of_another_user_can_be_written_by_that_user_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    written(ledger).close()
    os.chown(ledger, NOBODY, NOBODY)
    with pytest.raises(UnavailableError, match="belongs to another user, nobody: serve as that user, or name another"):
        written(ledger)


@as_root
def test_a_spool_that_another_user_planted_is_refused(tmp_path: Path) -> None:
    open_spool(tmp_path, "spool").close()
    for each in tmp_path.iterdir():
        os.chown(each, NOBODY, NOBODY)
    with pytest.raises(UnavailableError, match="belongs to another user"):
        open_spool(tmp_path, "spool")
