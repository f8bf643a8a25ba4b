"""The time of day jumps under a server with workers: sessions go on, and what was acknowledged is in the ledger."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_serdes import Outcome
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import ask, write_policy
from tests.server.workers.fleet import WORKERS, on_all, workers

_DAY = 86400
_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """Give the file of the clock's offset, in seconds."""
    if not _LIBRARIES:
        pytest.skip("needs libfaketime")
    (tmp_path / "clock").write_text("+0")
    return tmp_path / "clock"


@pytest.fixture
def server(tmp_path: Path, clock: Path) -> Iterator[RunningServer]:
    write_policy(tmp_path / "policies")
    faked = (
        f"LD_PRELOAD={_LIBRARIES[-1]}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "NO_FAKE_STAT=1",
    )
    more = ("--workers", WORKERS, "--decision-timeout", 5, "--idle-timeout", 60, "--ledger", tmp_path / "ledger.db")
    with (
        TemporaryDirectory(prefix="pb-") as name,
        running_server(tmp_path / "policies", Path(name), *more, before=("env", *faked)) as server,
    ):
        yield server


def test_no_session_worker_or_record_is_lost_when_the_time_of_day_jumps_by_years(
    server: RunningServer, clock: Path, tmp_path: Path
) -> None:
    before = workers(server)
    with ExitStack() as stack:
        sessions = on_all(stack, server.socket, server.grpc)
        for offset in (365 * _DAY, -365 * _DAY, 3600, -_DAY, 0):
            fresh = clock.with_name("fresh")
            fresh.write_text(f"{offset:+d}")
            fresh.replace(clock)
            for session in sessions:
                ask(session)
            sessions += on_all(stack, server.socket, server.grpc)
        for session in sessions:
            session.report(Outcome({"text": 1.0}, "ok"))
        ids = {session.id for session in sessions}
    assert workers(server) == before
    with LedgerReader(tmp_path / "ledger.db") as reader:
        assert {session.id for session in reader.sessions() if session.outcome is not None} >= ids
