"""GCC with the plugin, its server's policies, and a source with loops."""

from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.native.conftest import Target, build_grpc
from tests.native.gcc.compiling import Gcc, write_loops, write_policies


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture(scope="module")
def gcc(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Gcc:
    over_grpc = getattr(request, "param", "socket") == "grpc"
    if over_grpc:
        build_grpc(native)
    return Gcc.of(native, server.grpc if over_grpc else server.socket)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_loops(tmp_path)
