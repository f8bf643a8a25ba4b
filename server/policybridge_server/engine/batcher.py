"""The batcher: decisions of one model for clients of one signature. Those of one turn form a batch."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Final

from policybridge_core.errors import PolicyBridgeError, PolicyFailedError
from policybridge_server.counters import VersionCounters
from policybridge_server.engine.decision import Decision, Result
from policybridge_server.engine.evaluator import Evaluator
from policybridge_server.engine.model_host import ModelHost
from policybridge_server.engine.pace import INLINE_SECONDS

_INLINE: Final = int(INLINE_SECONDS * 1e9)

_TOGETHER: Final = 32
"""Decisions of clients, about, that are made again together at once."""

_LATER: Final = 0.1
"""Seconds until fewer are."""


class Batcher:
    """Collects decisions and runs them as batches. Made by ``LoadedVersion.batcher``.

    Attributes:
        ignored: the client's features that the model does not know.
        sessions: number of sessions that are bound to it.
        left: decisions that clients made, and that wait to be made again with those of other sessions.

    Args:
        evaluator: computes the results of a batch.
        place: where the model runs.
        schedule: asks for a run of the batcher at the end of the turn; called once for each batch.
        ignored: the client's features that the model ignores.
        counters: of the version.

    """

    def __init__(
        self,
        evaluator: Evaluator,
        place: ModelHost,
        schedule: Callable[["Batcher"], None],
        ignored: tuple[str, ...],
        counters: VersionCounters,
    ) -> None:
        self.ignored = ignored
        self.sessions = 0
        self._evaluator = evaluator
        self._place = place
        self._schedule = schedule
        self._counters = counters
        self._repeats = 0
        self._waiting: list[Decision] = []
        self._running: list[Decision] = []
        self.left: list[Decision] = []
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, decision: Decision) -> None:
        """Put ``decision`` into the next batch."""
        if not self._waiting and not self._running:
            self._schedule(self)
        self._waiting.append(decision)

    def repeat(self, decisions: Sequence[Decision]) -> None:
        """Put decisions, which clients made themselves, into the next batch: nobody waits for their advice."""
        self._repeats += len(decisions)
        for decision in decisions:
            self.submit(decision)

    def repeat_later(self, decisions: Sequence[Decision]) -> None:
        """Put such decisions into one batch with those of other sessions, in a tenth of a second."""
        self.left += decisions
        if len(self.left) >= _TOGETHER:
            self._repeat_left()
        elif self._timer is None:
            # The timer keeps this batcher alive, too: its last session may be over.
            self._timer = self._place.later(_LATER, self._repeat_left)
            if self._timer is None:
                self._repeat_left()

    def _repeat_left(self) -> None:
        left, self.left = self.left, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.repeat(left)

    def run(self, begun: int, read: int) -> int:
        """Evaluate all decisions that wait; give the number of those that a client asks for. Others may be submitted.

        Args:
            begun: when the server began to read them, by `time.perf_counter_ns`.
            read: when it had read the last of them.

        """
        decisions, self._waiting = self._waiting, []
        if not decisions:
            # They were given up, or evaluated before the model was freed.
            return 0
        place, count = self._place, len(decisions)
        asked, self._repeats = count - self._repeats, 0
        if place.worker is None:
            taken = perf_counter_ns()
            results = self._evaluator.results(place.model, decisions)
            evaluated = perf_counter_ns()
            if evaluated - taken > _INLINE:
                place.was_slow((evaluated - taken) / 1e9, self._evaluator.runs(count), count)
            _deliver(decisions, results)
            self._counters.batch(count, read - begun, taken - read, evaluated - taken, perf_counter_ns() - evaluated)
        else:
            self._running += decisions
            runs, done = self._evaluator.runs(count), partial(self._done, decisions, read - begun, read)
            place.run(place.worker, lambda model: self._evaluator.results(model, decisions), count, runs, done)
        return asked

    def _done(
        self, decisions: list[Decision], reading: int, put: int, results: Sequence[Result], seconds: float
    ) -> None:
        # A worker ends its batches in their order.
        self._running = self._running[len(decisions) :]
        if self._waiting:
            self._schedule(self)
        evaluated, done = int(seconds * 1e9), perf_counter_ns()
        _deliver(decisions, results)
        waited = max(0, done - put - evaluated)
        self._counters.batch(len(decisions), reading, waited, evaluated, perf_counter_ns() - done)

    def close(self) -> None:
        """Evaluate all decisions that wait, and those that are left, before the model is freed."""
        self._repeat_left()
        now = perf_counter_ns()
        # A worker takes this batch beside the one that it evaluates: after the model's end it takes none.
        self.run(now, now)

    def give_up(self, error: PolicyBridgeError) -> None:
        """Answer all waiting observations with ``error``."""
        decisions, self._running, self._waiting = self._running + self._waiting, [], []
        self._repeats = 0
        _deliver(decisions, [error] * len(decisions))


def _deliver(decisions: Sequence[Decision], results: Sequence[Result]) -> None:
    for decision, result in zip(decisions, results, strict=True):
        if isinstance(result, PolicyBridgeError):
            if isinstance(result, PolicyFailedError):
                decision.session.failures += 1
            decision.sink.fail(result)
        else:
            decision.sink.answer(*result)
