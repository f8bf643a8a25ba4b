"""Errors and their gRPC status."""

import pytest

from policybridge_core import errors
from policybridge_core.errors import PolicyBridgeError, Status, error_from_status


@pytest.mark.parametrize("status", Status)
def test_a_status_becomes_the_error_that_carries_it(status: Status) -> None:
    error = error_from_status(status, "why")
    assert error.status == status or error.status is Status.UNKNOWN
    assert str(error) == "why"


def test_every_error_survives_the_wire() -> None:
    # Other packages have kinds of their own, which never reach the wire.
    for kind in (kind for kind in PolicyBridgeError.__subclasses__() if kind.__module__ == errors.__name__):
        assert type(error_from_status(kind.status, "")) is kind
