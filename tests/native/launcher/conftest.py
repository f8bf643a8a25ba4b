"""The launcher, and the fixtures of the Python host's tests, because the launcher has to pass those tests too."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.client.conftest import folder, policies, server
from tests.conftest import ServerFactory, running_server
from tests.measures.compiler_caches import free_port
from tests.native.conftest import Target, build_grpc, sanitized
from tests.native.llvm.plugins import need

__all__ = ["ServerFactory", "folder", "policies", "running_server", "server"]

_ELSEWHERE = "ziglang"
"""Cases of the Python host's tests that are left out: zig starts slowly."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of the Python host's tests that do not apply to the launcher."""
    here = Path(__file__).parent

    def shared(item: pytest.Item) -> bool:
        return here in item.path.parents and _ELSEWHERE in item.name.partition("[")[2]

    config.hook.pytest_deselected(items=[item for item in items if shared(item)])
    items[:] = [item for item in items if not shared(item)]


@pytest.fixture(scope="session")
def checked_launcher(native: Target) -> str:
    """Build the launcher with the checks of ASan and UBSan."""
    return str(native("policybridge-run", *sanitized()) / "bin" / "policybridge-run")


@pytest.fixture(scope="session")
def grpc_launcher(native: Target, checked_launcher: str) -> str:
    """Build one that reaches servers by gRPC: with those checks it is not linked statically."""
    build_grpc(native, *sanitized())
    return checked_launcher


@pytest.fixture
def launched(launcher: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the Python host's tests start the launcher in place of ``policybridge run``."""

    def command(verb: str, *arguments: object) -> Sequence[str]:
        assert verb == "run"
        over_grpc = any(str(word).startswith("grpc:") for word in arguments)
        return [request.getfixturevalue("grpc_launcher") if over_grpc else launcher, *map(str, arguments)]

    monkeypatch.setattr("tests.client.test_llvm_failures.command", command)
    monkeypatch.setattr("tests.client.test_llvm_host.command", command)


@pytest.fixture(params=["ccache", "sccache"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a compiler cache that is empty."""
    program = need(request.param)
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(free_port()))
    # On a busy machine its server may take more than the ten seconds that it has otherwise.
    settings = tmp_path / "sccache.toml"
    settings.write_text("server_startup_timeout_ms = 120000\n")
    monkeypatch.setenv("SCCACHE_CONF", str(settings))
    yield program
    if request.param == "sccache":
        subprocess.run([program, "--stop-server"], capture_output=True, check=False)
