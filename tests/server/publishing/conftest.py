"""The repository that the tests of publishing share."""

from pathlib import Path

import pytest

from tests.server.publishing.policies import write_adder, write_policy


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Give a repository with the policy ``adder``, whose version 1 adds 100."""
    write_policy(tmp_path / "policies")
    return tmp_path / "policies"


@pytest.fixture
def folder(policies: Path) -> Path:
    """Give the same repository with the version 2, which adds 200."""
    write_adder(policies / "adder" / "2", 200)
    return policies
