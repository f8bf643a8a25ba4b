"""The kills, for some seconds: `make soak-kills` runs them for half an hour."""

import pytest

from tests.kills.command import main


def test_everything_acknowledged_is_there_after_each_kill(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--kills", "4"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "lost or damaged: 0" in shown
