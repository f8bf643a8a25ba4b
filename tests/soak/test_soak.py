"""The soak, for some seconds: `make soak` runs it for half an hour."""

import pytest

from tests.soak.command import main


def test_what_the_server_acknowledged_is_held_after_random_faults(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--minutes", "0.1", "--clients", "2", "--seed", "7"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "sessions acknowledged" in shown
