"""The measurements of docs/ray.md and docs/benchmarks.md run and print their figures."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.measures import costs

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""The measurements leave some files to the end of the process."""
ROOT: Final = Path(__file__).parents[2]


def test_sessions_and_decisions_have_a_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main(["--sessions", "5", "--decisions", "50"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^a session of one decision: [\d.]+ ms .*, \d+ bytes of ledger$", said, re.MULTILINE)
    assert re.search(r"^a decision, one client: [\d.]+ µs, \d+ bytes of ledger$", said, re.MULTILINE)
    made = r"^a session of 281 decisions that the client makes: [\d.]+ ms .*, \d+ bytes of ledger$"
    assert re.search(made, said, re.MULTILINE)


def test_the_curve_of_slots_has_a_row_for_each_number() -> None:
    # Ray forks, which JAX warns of in a process that has loaded it for another test.
    words = [sys.executable, "-m", "tests.slots", "--slots", "2", "--rounds", "3", "--seconds", "0.05"]
    head, *rows = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert head.startswith("slots  compiles/s")
    assert [row.split()[0] for row in rows] == ["2"]
