"""PostgreSQL stopped and killed, for some seconds: `make soak-postgres` does it for minutes."""

import pytest

from tests.postgres_soak.command import main
from tests.postgresql import installed_postgres

__all__ = ["installed_postgres"]


@pytest.mark.usefixtures("installed_postgres")
def test_what_two_servers_acknowledged_is_held_when_their_database_is_stopped_and_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--sessions", "2", "--stopped", "1", "--kills", "1", "--away", "1"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "0 lost or damaged" in shown
