"""The checks of the kills find missing records."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.sqlite import SqliteStore
from tests.kills.asker import digested
from tests.kills.checks import Figures, LedgerCheck
from tests.kills.command import main
from tests.kills.messages import Acknowledged
from tests.postgres_soak import cluster
from tests.server.ledger.test_bounds import session


def test_a_missing_session_and_one_with_other_records_are_told(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "runs.db", Bounds())) as store:
        store.write(session("kept", 1.0))
    figures = Figures()
    told = [Acknowledged(name, name, 0, 100, digested(b"others"), 2) for name in ("gone", "kept")]
    LedgerCheck(tmp_path / "runs.db", None, figures).check(told, 0.0)
    assert figures.decisions == 200
    assert figures.faults == [
        "session gone with 100 acknowledged decisions is lost",
        "session kept has other observations than those that were acknowledged",
        "session kept has other advices than those that were acknowledged",
        "session kept lacks its outcome 2",
    ]


def test_a_scene_that_cannot_be_played_is_told_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "_INSTALLED", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    told = []
    for scene in ("storm", "database"):
        with pytest.raises(SystemExit):
            main(["--scenes", scene])
        told.append(capsys.readouterr().err.splitlines()[-1].partition("error: ")[2])
    assert told == [
        "'storm' is no scene; there are alone, workers, replicas, database",
        "PostgreSQL is not installed (Debian: postgresql); or play the others: --scenes alone,workers,replicas",
    ]
