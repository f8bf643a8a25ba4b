"""Exports: LLVM's training log, Parquet, and the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_serdes import Outcome, SessionOptions
from policybridge_serdes.training_log import TrainingLogReader
from tests.commands import told
from tests.server.ledger.asking import ask, open_network, rows
from tests.server.ledger.conftest import Recording


@pytest.fixture(scope="module")
def known(recording: Recording) -> list[str]:
    """Record three sessions with two contexts each."""
    ids = []
    for n in range(3):
        session = open_network(recording.server.socket, SessionOptions(labels={"n": str(n)}))
        session.context("")
        ask(session, rows(20, seed=n))
        session.context("f")
        ask(session, rows(10, seed=10 + n))
        session.report(Outcome({"text": 100.5 + n}, "ok"))
        session.close()
        ids.append(session.id)
    return ids


def sessions(recording: Recording, *arguments: object) -> str:
    done = told("sessions", arguments[0], "--ledger", recording.ledger, *arguments[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(recording: Recording, *arguments: object) -> str:
    done = told("sessions", arguments[0], "--ledger", recording.ledger, *arguments[1:])
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_the_list_has_a_line_for_each_session(recording: Recording, known: list[str]) -> None:
    _, *lines = sessions(recording, "list").splitlines()
    assert [line.split()[0] for line in lines] == [one[:12] for one in known]
    assert all(part in lines[1] for part in ("network@2", "30", "ok", "n=1"))
    (line,) = sessions(recording, "list", "--label", "n=2", "--json", "--version", "1-2", "--since", "1h").splitlines()
    told = json.loads(line)
    assert told["outcome"] == {"values": {"text": 102.5}, "status": "ok"}
    assert (told["id"], told["decisions"], told["policy"]["version"]) == (known[2], 30, 2)
    assert "no session with the status 'crash'" in refused(recording, "list", "--status", "crash")


def test_a_session_is_shown_with_its_contexts_and_advices(recording: Recording, known: list[str]) -> None:
    told = json.loads(sessions(recording, "show", known[0][:10], "--json"))
    assert told["contexts"] == {"": 20, "f": 10}
    assert sum(told["advices"].values()) == 30
    assert "network" in sessions(recording, "show", known[0])
    assert "no sessions" in refused(recording, "show", "nobody")


def test_the_training_log_holds_observations_decisions_and_the_reward(
    recording: Recording, known: list[str], tmp_path: Path
) -> None:
    said = sessions(recording, "export", "--to", tmp_path / "log", "--score", "text", "--label", "n=1")
    assert said == f"30 decisions written to {tmp_path / 'log'}\n"
    with (tmp_path / "log").open("rb") as file:
        log = TrainingLogReader(file)
        logged = list(log)
    assert log.header.features.specs == (*SIGNATURE.features.specs, SIGNATURE.advice)
    wide = SIGNATURE.features.size
    asked = [*rows(20, seed=1), *rows(10, seed=11)]
    assert [one.values.tobytes()[:wide] for one in logged] == [row.tobytes() for row in asked]
    assert [one.context for one in logged] == [known[1]] * 20 + [f"{known[1]}/f"] * 10
    assert {float(one.reward[0]) for one in logged if one.reward is not None} == {101.5}
    with recording.reader() as reader:
        (batch,) = reader.trajectory(reader.session(known[1])).batches
    assert b"".join(one.values.tobytes()[wide:] for one in logged) == batch.advices.tobytes()


def test_an_export_without_decisions_or_without_the_score_says_so_and_leaves_no_file(
    recording: Recording, known: list[str], tmp_path: Path
) -> None:
    assert "no session with decisions" in refused(recording, "export", "--to", tmp_path / "a", "--policy", "nobody")
    assert f"the session {known[0]} has no outcome 'cycles'" in refused(
        recording, "export", "--to", tmp_path / "b", "--score", "cycles"
    )
    assert "for the outcome that --score names" in refused(
        recording, "export", "--to", tmp_path / "c", "--score-default", "1"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["log", "parquet"])
def test_sessions_without_the_outcome_get_the_default_score(
    recording: Recording, known: list[str], tmp_path: Path, name: str
) -> None:
    assert len(known) == 3
    words = ("--label", "n=1", "--score", "cycles", "--score-default", "-2.5", "--format", name)
    sessions(recording, "export", "--to", tmp_path / "a", *words)
    if name == "log":
        with (tmp_path / "a").open("rb") as file:
            rewards = {float(one.reward[0]) for one in TrainingLogReader(file) if one.reward is not None}
    else:
        rewards = set(pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "a")["outcome.cycles"].to_pylist())
    assert rewards == {-2.5}


def test_parquet_has_a_row_for_each_decision(recording: Recording, known: list[str], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    sessions(recording, "export", "--to", tmp_path / "p", "--format", "parquet")
    table = pq.read_table(tmp_path / "p")
    assert table.num_rows == 90
    assert table["session"].to_pylist() == [one for one in known for _ in range(30)]
    assert table["context"].to_pylist() == ([""] * 20 + ["f"] * 10) * 3
    assert table["outcome.text"].to_pylist() == [100.5] * 30 + [101.5] * 30 + [102.5] * 30
    assert table["label.n"].to_pylist() == [str(n) for n in range(3) for _ in range(30)]
    assert table["step"].to_pylist() == list(range(1, 31)) * 3
    assert table["log_probability"].null_count == 90
    asked = [row for n in range(3) for row in (*rows(20, seed=n), *rows(10, seed=10 + n))]
    for name in ("f0", "f37"):
        assert table[f"feature.{name}"].to_pylist() == [row[name].item() for row in asked]
    with recording.reader() as reader:
        advices = [one for batch in reader.batches() for one in batch.advices["inlining_decision"].reshape(-1).tolist()]
    assert table["advice"].to_pylist() == advices


def test_where_pyarrow_is_missing_parquet_names_the_command_that_installs_it() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from policybridge_server.ledger.export import FORMATS\n"
        "FORMATS.load('parquet')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "needs the Python package 'pyarrow': pip install 'policybridge[parquet]'" in done.stderr
