"""The launcher, and the fixtures of the Python host's tests, whose cases it has to pass too."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.client.conftest import folder, policies, server
from tests.conftest import ServerFactory, running_server
from tests.native.conftest import BUILD, Target

__all__ = ["ServerFactory", "folder", "policies", "running_server", "server"]

_ELSEWHERE = ("ziglang", "grpc")
"""Cases of the Python host's tests: zig's start is slow, and the launcher speaks no gRPC."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not the launcher's among the cases that it shares with the Python host."""
    here = Path(__file__).parent

    def shared(item: pytest.Item) -> bool:
        return here in item.path.parents and any(word in item.name.partition("[")[2] for word in _ELSEWHERE)

    config.hook.pytest_deselected(items=[item for item in items if shared(item)])
    items[:] = [item for item in items if not shared(item)]


@pytest.fixture(scope="session")
def launcher(native: Target) -> str:
    """Build the launcher."""
    return str(native("policybridge-run") / "bin" / "policybridge-run")


@pytest.fixture(scope="session")
def checked_launcher(native: Target) -> str:
    """Build the launcher with the checks of ASan and UBSan."""
    flags = "-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined -fno-sanitize-recover=all"
    build = BUILD.with_name(f"{BUILD.name}-launcher-sanitized")
    return str(native("policybridge-run", build, "-DCMAKE_BUILD_TYPE=None", flags) / "bin" / "policybridge-run")


@pytest.fixture
def launched(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the Python host's tests start the launcher wherever they start ``policybridge run``."""

    def command(verb: str, *arguments: object) -> Sequence[str]:
        assert verb == "run"
        return [launcher, *map(str, arguments)]

    monkeypatch.setattr("tests.client.test_llvm_failures.command", command)
    monkeypatch.setattr("tests.client.test_llvm_host.command", command)
