"""A loop for tests of what runs on the server's thread."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from policybridge_server.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop(lambda: 0)
    yield made
    made.close()


def run(work: "Coroutine[Any, Any, None]", loop: Loop) -> None:
    loop.run_until_complete(asyncio.wait_for(work, 60))
