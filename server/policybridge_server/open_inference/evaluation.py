"""Observations without a session: each is answered as if it had one to itself, and nothing is recorded."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.loaded import LoadedVersion


class Answers:
    """A sink for the answers of one request at a time."""

    def __init__(self) -> None:
        self._future: asyncio.Future[list[Values]] | None = None
        self._advices: list[Values] = []
        self._count = 0

    def expect(self, count: int) -> "asyncio.Future[list[Values]]":
        """Give the future of the next ``count`` answers."""
        self._future, self._advices, self._count = asyncio.get_running_loop().create_future(), [], count
        return self._future

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Take one of them."""
        self._advices.append(advice)
        if len(self._advices) == self._count and self._future is not None and not self._future.done():
            self._future.set_result(self._advices)

    def fail(self, error: PolicyBridgeError) -> None:
        """Take the news that one of them will not come; then none is given."""
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


async def evaluate(
    engine: Engine, loaded: LoadedVersion, batcher: Batcher, rows: Sequence[Row], options: Mapping[str, str]
) -> list[Values]:
    """Give the advice for each row.

    Raises:
        PolicyFailedError: there is none for one of them.

    """
    answers = Answers()
    future = answers.expect(len(rows))
    views = [SessionView(uuid.uuid4().hex, loaded.stored.policy, options=options) for _ in rows]
    for view, row in zip(views, rows, strict=True):
        loaded.begin()
        batcher.submit(Decision(view, row, answers))
    try:
        return await future
    finally:
        for view in views:
            loaded.end(view)
        engine.versions.release(loaded)
