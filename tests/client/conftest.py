"""One server with all test policies for each module of tests; what breaks a server starts one of its own."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.client.compilers import left_behind
from tests.client.policies import write_policies
from tests.conftest import RunningServer, running_server


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the repository of `tests.client.policies`."""
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture(scope="module")
def server(policies: Path) -> Iterator[RunningServer]:
    with TemporaryDirectory(prefix="pb-") as folder, running_server(policies, Path(folder)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder of the test's own, where the host's channels are too, and find nothing left there."""
    monkeypatch.chdir(tmp_path)
    channels = tmp_path / "channels"
    channels.mkdir()
    monkeypatch.setenv("TMPDIR", str(channels))
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    yield tmp_path
    assert left_behind(channels) == []
    assert list(channels.iterdir()) == []
