"""The batcher: decisions of one model for clients of one signature. What waits at the end of a turn is one batch."""

from collections.abc import Callable, Sequence

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.engine.decision import Decision, Result
from policybridge_server.engine.evaluator import Evaluator
from policybridge_server.engine.worker import Worker


class Batcher:
    """Collects decisions and runs them as batches. Made by ``LoadedVersion.batcher``.

    Attributes:
        ignored: the client's features that the model does not know.
        sessions: number of sessions that are bound to it.

    Args:
        evaluator: gives the results of a batch.
        worker: runs the batches in its thread; ``None``: they run on the loop thread.
        schedule: lets the batcher run at the end of the turn; called once for each batch.
        ignored: the client's features that the model does not know.

    """

    def __init__(
        self,
        evaluator: Evaluator,
        worker: Worker | None,
        schedule: Callable[["Batcher"], None],
        ignored: tuple[str, ...],
    ) -> None:
        self.ignored = ignored
        self.sessions = 0
        self._evaluator = evaluator
        self._worker = worker
        self._schedule = schedule
        self._waiting: list[Decision] = []
        self._busy = False

    def submit(self, decision: Decision) -> None:
        """Put ``decision`` into the next batch."""
        if not self._waiting and not self._busy:
            self._schedule(self)
        self._waiting.append(decision)

    def run(self) -> int:
        """Evaluate all decisions that wait; give their number. Meanwhile others may be submitted."""
        decisions, self._waiting = self._waiting, []
        if self._worker is None:
            _deliver(decisions, self._evaluator.results(decisions))
        else:
            self._busy = True
            self._worker.put(lambda: (decisions, self._evaluator.results(decisions)), self._done)
        return len(decisions)

    def _done(self, answered: tuple[Sequence[Decision], Sequence[Result]]) -> None:
        self._busy = False
        if self._waiting:
            self._schedule(self)
        _deliver(*answered)


def _deliver(decisions: Sequence[Decision], results: Sequence[Result]) -> None:
    for decision, result in zip(decisions, results, strict=True):
        if isinstance(result, PolicyBridgeError):
            decision.sink.fail(result)
        else:
            decision.sink.answer(*result)
