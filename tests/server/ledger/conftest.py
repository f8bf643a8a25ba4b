"""One recording server for each module of tests; what kills a server starts one of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.server.ledger.asking import write_policies


@dataclass
class Recording:
    """A server, and the ledger that it writes."""

    server: RunningServer
    ledger: Path

    def reader(self) -> LedgerReader:
        return LedgerReader(self.ledger)


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture(scope="module")
def recording(policies: Path) -> Iterator[Recording]:
    with TemporaryDirectory(prefix="pb-") as name:
        ledger = Path(name) / "ledger.db"
        with running_server(policies, Path(name), "--ledger", ledger) as server:
            yield Recording(server, ledger)


@pytest.fixture(params=["socket", "grpc"])
def address(request: pytest.FixtureRequest, recording: Recording) -> str:
    """Give the server's address over every transport in turn."""
    given: str = getattr(recording.server, request.param)
    return given
