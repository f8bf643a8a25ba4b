"""The measurements of docs/ray.md and docs/scale.md run and print their figures."""

import re

import pytest

from tests.measures import costs
from tests.slots import command as slots

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:ray")
"""Ray leaves some of its files to the end of the process."""


def test_sessions_and_decisions_have_a_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main(["--sessions", "5", "--decisions", "50"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^a session of one decision: [\d.]+ ms .*, \d+ bytes of ledger$", said, re.MULTILINE)
    assert re.search(r"^a decision, one client: [\d.]+ µs, \d+ bytes of ledger$", said, re.MULTILINE)


def test_the_curve_of_slots_has_a_row_for_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert slots.main(["--slots", "2", "--rounds", "3", "--seconds", "0.05"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("slots  compiles/s")
    assert [row.split()[0] for row in rows] == ["2"]
