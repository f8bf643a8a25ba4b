"""Logs that come back: LLVM's own, and those of an export."""

from pathlib import Path

import numpy as np
import pytest

from policybridge_serdes import ElementType, Layout, TensorSpec
from policybridge_serdes.training_log import LogHeader, TrainingLogWriter
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.commands import told
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_export import known, sessions  # noqa: F401 - a fixture

COST = TensorSpec("cost", ElementType.INT64)
TAKEN = TensorSpec("inlining_decision", ElementType.INT64)
DELTA = TensorSpec("delta_size", ElementType.FLOAT)


def run_command(*words: object, status: int = 0) -> str:
    done = told(*words)
    assert done.returncode == status, done.stderr
    return done.stdout if not status else done.stderr


def write_log(path: Path, contexts: dict[str, int]) -> Path:
    """Write a log as LLVM does: the decision is the last feature, and the header names no advice."""
    with path.open("wb") as file, TrainingLogWriter(file, LogHeader(Layout((COST, TAKEN)), DELTA)) as log:
        for context, count in contexts.items():
            log.context(context)
            for n in range(count):
                log.observation(np.array([n, n % 2], np.int64).tobytes())
                log.outcome(float(n))
    return path


def test_each_context_of_a_log_is_a_session_with_the_sum_of_its_rewards(tmp_path: Path) -> None:
    log = write_log(tmp_path / "of llvm.log", {"f": 300, "größer": 3})
    done = run_command("sessions", "import", "--ledger", tmp_path / "l.db", "--label", "by=llvm", log)
    assert done == f"2 sessions with 303 decisions read from {log}\n"
    with LedgerReader(tmp_path / "l.db") as ledger:
        first, second = ledger.trajectories(Query(policy="imported", labels={"by": "llvm", "log": str(log)}))
    (batch,) = first.batches
    assert batch.observations["cost"].reshape(-1).tolist() == list(range(300))
    assert batch.advices["inlining_decision"].reshape(-1).tolist() == [0, 1] * 150
    assert set(batch.contexts) == {"f"}
    assert second.session.outcome is not None
    assert dict(second.session.outcome.values) == {"delta_size": 3.0}
    assert second.session.closed is not None


def test_an_export_is_read_back_as_it_was(recording: Recording, known: list[str], tmp_path: Path) -> None:  # noqa: F811
    sessions(recording, "export", "--to", tmp_path / "log", "--score", "text")
    run_command("sessions", "import", "--ledger", tmp_path / "l.db", "--reward", "last", tmp_path / "log")
    with LedgerReader(tmp_path / "l.db") as ledger, recording.reader() as source:
        imported, exported = (list(each.trajectories()) for each in (ledger, source))
    assert len(imported) == 2 * len(exported) == 2 * len(known)
    rewards = [one.session.outcome.values["reward"] for one in imported if one.session.outcome]
    assert rewards == [100.5, 100.5, 101.5, 101.5, 102.5, 102.5]
    bytes_of = [
        b"".join(batch.observations.tobytes() + batch.advices.tobytes() for one in some for batch in one.batches)
        for some in (imported[:1], exported[:1])
    ]
    assert bytes_of[1].startswith(bytes_of[0][:100])


@pytest.mark.parametrize("cut", [0, 10, 200, -1])
def test_a_log_that_is_cut_off_brings_no_session_into_the_ledger(tmp_path: Path, cut: int) -> None:
    log = write_log(tmp_path / "log", {"f": 20})
    log.write_bytes(log.read_bytes()[:cut])
    said = run_command("sessions", "import", "--ledger", tmp_path / "l.db", log, status=2)
    assert "training log" in said
    with LedgerReader(tmp_path / "l.db") as ledger:
        assert list(ledger.sessions()) == []


def test_a_log_without_decisions_says_so(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(LogHeader(Layout((COST, DELTA)), advice=TAKEN).to_line())
    said = run_command("sessions", "import", "--ledger", tmp_path / "l.db", tmp_path / "log", status=2)
    assert "the log has no decisions" in said
