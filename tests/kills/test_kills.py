"""The kills, for some seconds: `make soak-kills` runs them for half an hour."""

from pathlib import Path

import pytest

from tests.kills.command import main
from tests.postgresql import installed_postgres

__all__ = ["installed_postgres"]


@pytest.mark.parametrize("scene", ["alone", "workers", "replicas", "database"])
def test_everything_acknowledged_is_there_after_each_kill(
    scene: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if scene == "database":
        request.getfixturevalue("installed_postgres")
    words = ["--kills", "4", "--scenes", scene, "--tally", str(tmp_path / "tally.json")]
    status = main(words)
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "lost or damaged: 0" in shown
    assert main(words) == 0
    assert capsys.readouterr().out == shown, "a run goes on from the totals of the one before"
