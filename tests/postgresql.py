"""One PostgreSQL for all tests of a run that import the fixture."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from policybridge_core.errors import PreconditionError
from tests.postgres_soak.cluster import Postgres, programs, running_postgres

REQUIRED: Final = "POLICYBRIDGE_REQUIRE_POSTGRES"


@pytest.fixture(scope="session")
def installed_postgres() -> None:
    """Skip the test where PostgreSQL is not installed."""
    try:
        programs()
    except PreconditionError as missing:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}, and {REQUIRED} is set", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def postgres(installed_postgres: None) -> Iterator[Postgres]:  # noqa: ARG001
    """Give a cluster; what ends it starts it again."""
    with running_postgres() as running:
        yield running
