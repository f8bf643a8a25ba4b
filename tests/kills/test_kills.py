"""The kills, for some seconds: `make soak-kills` runs them for half an hour."""

import pytest

from tests.kills.command import main
from tests.postgresql import installed_postgres

__all__ = ["installed_postgres"]

SCENES = ["alone", "workers", "replicas", pytest.param("database", marks=pytest.mark.usefixtures("installed_postgres"))]


@pytest.mark.parametrize("scene", SCENES)
def test_everything_acknowledged_is_there_after_each_kill(scene: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--kills", "4", "--scenes", scene])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "lost or damaged: 0" in shown
