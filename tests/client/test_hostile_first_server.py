"""The client in Python and a list of servers whose first one is silent, leaves or is another program."""

import pytest

from policybridge_client.connection import connect
from tests.client.hostile_first_server import Connect, FirstServerContract


@pytest.mark.timeout(120)
class TestPython(FirstServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return connect
