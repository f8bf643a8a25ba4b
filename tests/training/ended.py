"""Processes that must not be left behind."""

import time

from tests.client.compilers import left_behind


def wait_until_gone(marker: object) -> None:
    """Wait until no process has ``marker`` in its command: one that was killed is there for a moment."""
    deadline = time.monotonic() + 60
    while found := left_behind(marker):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
