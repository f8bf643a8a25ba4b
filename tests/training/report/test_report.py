"""The report of a training run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from policybridge_train.learning.record import Iteration
from policybridge_train.report.page import write_report
from policybridge_train.report.run import ProjectRow, TrainingRun, flips_by_feature
from policybridge_train.report.tensorboard import write_scalars


def made_run() -> TrainingRun:
    sums = [(1000.0, 500.0), (950.0, 490.0), (970.0, 500.0)]
    iterations = [
        Iteration(n, n + 1, "", 100 * n, 60.0 * n, {"zlib": {"text": one}, "odd<name>": {"text": other}})
        for n, (one, other) in enumerate(sums)
    ]
    cost = np.arange(100.0)
    flips = flips_by_feature({"cost": cost, "same": np.ones(100)}, cost < 5, cost < 30)
    return TrainingRun(
        "inline by <credit>",
        iterations,
        {"seed": "1"},
        [ProjectRow("operator<caller\udcff", "c++", "text", 900, 810), ProjectRow("empty", "c", "text", 0, 0)],
        flips,
    )


def test_changes_are_those_of_the_sums_since_the_first_iteration() -> None:
    run = made_run()
    assert run.measures == ["text"]
    assert run.changes("text") == pytest.approx([0, -60 / 1500, -30 / 1500])
    assert run.changes("text", "odd<name>") == pytest.approx([0, -0.02, 0])
    assert np.isnan(run.changes("exec")).all()


def test_flips_are_counted_by_ranges_of_each_feature_that_varies() -> None:
    rows = made_run().flips
    assert {row.feature for row in rows} == {"cost"}
    assert sum(row.decisions for row in rows) == 100
    assert sum(row.to_yes for row in rows) == 25
    assert sum(row.to_no for row in rows) == 0
    assert rows[0].low == 0
    assert rows[-1].high == 99


def test_the_page_is_one_file_with_all_names_as_they_are(tmp_path: Path) -> None:
    write_report(made_run(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for word in (
        "inline by &lt;credit&gt;",
        "operator&lt;",
        "caller\\udcff",
        "-10.00 %",
        "+0.00 %",
    ):
        assert word in text
    assert "odd<name>" not in text
    assert 'src="http' not in text
    write_report(TrainingRun("nothing", []), tmp_path / "empty.html")


def test_tensorboard_finds_the_scalars_by_compiles(tmp_path: Path) -> None:
    write_scalars(made_run(), tmp_path)
    (file,) = tmp_path.iterdir()
    data, values = file.read_bytes(), dict[tuple[str, int], float]()
    while data:
        # A record of a TFRecord: the length, its checksum, the event, its checksum.
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        values |= {(each.tag, event.step): each.simple_value for each in event.summary.value}
        data = data[16 + size :]
    assert values["validation/text", 100] == pytest.approx(-4)
    assert len(values) == 9


def test_without_tensorboard_a_run_can_be_trained_and_reported() -> None:
    command = "import sys; sys.modules['tensorboardX'] = None; import policybridge_train.train_command"
    subprocess.run([sys.executable, "-c", f"{command}; import policybridge_train.report.making"], check=True)
