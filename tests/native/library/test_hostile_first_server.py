"""The C++ library and a list of servers whose first one is silent, leaves or is another program."""

from collections.abc import Iterator

import pytest

from tests.client.hostile_first_server import Connect, FirstServerContract
from tests.native.clients import programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS


@pytest.mark.timeout(240)
class TestCpp(FirstServerContract):
    @pytest.fixture
    def connect(self, native: Target) -> Iterator[Connect]:
        with programs(KINDS["cpp-grpc"].program(native)) as connect:
            yield connect
