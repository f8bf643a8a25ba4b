"""Observations without a session: each is answered like a session of its own, but not recorded."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.decision import Decision
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.loaded import LoadedVersion

_Result = TypeVar("_Result")

Done = Callable[[list[Values] | PolicyBridgeError], None]
"""Called on the loop thread with the advice for each observation, in order; or with the error of one of them."""


class Evaluation:
    """Asks for the advice of one request's observations; the sink of their answers.

    Each observation counts as a session while it is evaluated, so that its version stays loaded. A stateful model is
    told when that session is over.

    Args:
        engine: the version's engine.
        loaded: the answering version.
        batcher: the version's batcher for the client's signature.
        done: called when all answers are known.

    """

    __slots__ = ("_advices", "_batcher", "_done", "_engine", "_error", "_loaded", "_missing", "_views")

    def __init__(self, engine: Engine, loaded: LoadedVersion, batcher: Batcher, done: Done) -> None:
        self._engine = engine
        self._loaded = loaded
        self._batcher = batcher
        self._done = done
        self._views: list[SessionView] = []
        self._advices: list[Values] = []
        self._missing = 0
        self._error: PolicyBridgeError | None = None

    def submit(self, rows: Sequence[Row], options: Mapping[str, str]) -> None:
        """Ask for the advice of the observations, at least one; ``options`` are for the policy to read. Only once."""
        self._views = [self._engine.single_view(self._loaded, options) for _ in rows]
        for view, row in zip(self._views, rows, strict=True):
            self._loaded.begin()
            self._batcher.submit(Decision(view, row, self))

    def answer(self, advice: Values, log_probability: float | None) -> None:  # noqa: ARG002
        """Take the advice for the next observation."""
        self._advices.append(advice)
        self._check_done()

    def fail(self, error: PolicyBridgeError) -> None:
        """Take the error of the next observation; then the whole request fails."""
        self._error = error
        self._missing += 1
        self._check_done()

    def _check_done(self) -> None:
        if len(self._advices) + self._missing == len(self._views):
            for view in self._views:
                self._loaded.end(view)
            self._engine.versions.release(self._loaded)
            self._done(self._error or self._advices)


async def awaited(begin: Callable[[Callable[[_Result | PolicyBridgeError], None]], object]) -> _Result:
    """Call ``begin``, and return the result that it passes to its argument.

    Raises:
        PolicyBridgeError: the result is one.

    """
    future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()

    def settle(result: _Result | PolicyBridgeError) -> None:
        if future.done():
            return
        if isinstance(result, PolicyBridgeError):
            future.set_exception(result)
        else:
            future.set_result(result)

    begin(settle)
    return await future
