"""The demo's compilations are replayed without a server."""

import pytest

from tests.measures.replays import main


def test_recorded_compilations_replay_identical_and_tampered_ones_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "3", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "3 identical, observations and object" in said
    assert "3 reported as different at step 1" in said
