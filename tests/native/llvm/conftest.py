"""The majors of LLVM and their plugins, for tests that compile with each."""

from pathlib import Path

import pytest

from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import built_plugin


@pytest.fixture(params=MAJORS)
def major(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plugin(native: Target, major: str) -> Path:
    return built_plugin(native, "inliner", major)
