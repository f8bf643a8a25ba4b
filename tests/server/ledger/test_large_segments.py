"""Observations of megabytes in the ledger: written piece by piece, and read as they were."""

import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policybridge_serdes import ElementType, Layout, PolicyVersion, Signature, TensorSpec, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.records import Begun, Bulk, BulkPart, Ended, Record, Segment
from policybridge_server.ledger.sqlite import SqliteStore

MIB = 1 << 20
COUNT = 2 * MIB
ADVICE = TensorSpec("advice", ElementType.INT64, (1,))
LAYOUTS = {shape: Layout.of([TensorSpec("x", ElementType.INT64, (shape,))]) for shape in (COUNT, COUNT // 8, -1)}


def noise(layout: Layout, count: int, seed: int = 0) -> Row:
    data = np.frombuffer(np.random.default_rng(seed).bytes(8 * count), np.int64)
    if layout.fixed:
        return data.tobytes()
    row = np.zeros(1, layout.dtype)
    row["x"][0] = data
    return row


def session(name: str, signature: Signature, rows: Sequence[Row], chance: float | None = None) -> list[Record]:
    advice: Values = np.zeros(1, signature.advice_layout.dtype)
    advice["advice"][0] = 7
    decisions = [(row, advice, chance, 5) for row in rows]
    begun = Begun(SessionView(name, PolicyVersion("network", 1, "sha256:0")), 1.0)
    return [begun, Segment(name, 1, signature, "f", decisions, 8 * COUNT), Ended(name, 2.0)]


@pytest.mark.parametrize("chance", [None, -0.5])
@pytest.mark.parametrize(("shape", "count"), [(COUNT, 1), (COUNT // 8, 3), (-1, 1)])
def test_a_large_segment_is_read_as_it_was_written(
    tmp_path: Path, shape: int, count: int, chance: float | None
) -> None:
    layout = LAYOUTS[shape]
    rows = [noise(layout, COUNT // 8, seed) for seed in range(count)] if count > 1 else [noise(layout, COUNT)]
    with closing(SqliteStore(tmp_path / "ledger.db", Bounds())) as store:
        records = session("s", Signature(layout, ADVICE), rows, chance)
        # The session of this segment is not in the ledger.
        assert not store.write([*records, session("unknown", Signature(layout, ADVICE), rows)[1]])
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (found,) = reader.sessions()
        (batch,) = reader.trajectory(found).batches
    assert found.decisions == len(rows)
    observed = [batch.observations["x"][step] for step in range(len(rows))]
    assert [each.tobytes() for each in observed] == [
        row if isinstance(row, bytes) else row["x"][0].tobytes() for row in rows
    ]
    assert batch.advices["advice"].reshape(-1).tolist() == [7] * len(rows)
    assert batch.nanoseconds.tolist() == [5] * len(rows)
    assert [chance is None or each == chance for each in batch.log_probabilities.tolist()] == [True] * len(rows)


def test_large_observations_and_advices_that_a_client_reported_are_read_as_they_were_written(tmp_path: Path) -> None:
    layout = LAYOUTS[COUNT // 8]
    signature = Signature(layout, TensorSpec("advice", ElementType.INT64, (COUNT // 8,)))
    observations, advices = (b"".join(bytes(noise(layout, COUNT // 8, seed + n)) for n in range(3)) for seed in (1, 5))
    begun = Begun(SessionView("s", PolicyVersion("network", 1, "sha256:0")), 1.0)
    with closing(SqliteStore(tmp_path / "ledger.db", Bounds())) as store:
        bulk = Bulk([BulkPart(observations, advices, 3, 5)])
        assert not store.write([begun, Segment("s", 1, signature, "f", bulk, 8 * COUNT), Ended("s", 2.0)])
    with LedgerReader(tmp_path / "ledger.db") as reader:
        (found,) = reader.sessions()
        (batch,) = reader.trajectory(found).batches
    assert found.decisions == 3
    assert (batch.observations.tobytes(), batch.advices.tobytes()) == (observations, advices)


def memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def grown(ledger: Path) -> int:
    """Give the bytes of memory that writing 16 MiB of noise takes at most."""
    layout = LAYOUTS[COUNT]
    signature = Signature(layout, ADVICE)
    with closing(SqliteStore(ledger, Bounds())) as store:
        store.write(session("first", signature, [bytes(layout.size)]))
        records = session("second", signature, [noise(layout, COUNT)])
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        store.write(records)
        return memory("VmHWM") - before


def test_a_large_segment_takes_the_ledger_no_memory_besides_its_observations(tmp_path: Path) -> None:
    # In a process of its own, whose memory has no room left by other tests.
    command = "import sys, pathlib; from tests.server.ledger import test_large_segments as here; "
    command += "print(here.grown(pathlib.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", command, tmp_path / "ledger.db"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10 * MIB
