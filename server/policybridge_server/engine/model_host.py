"""Runs a version's model on the loop thread or in a worker; if the model hangs, the worker is replaced."""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, NamedTuple
from weakref import WeakMethod

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Values
from policybridge_server.backends.contract import Batch, Model, ModelSignature, SessionView, StatefulModel
from policybridge_server.counters import VersionCounters
from policybridge_server.engine.decision import Result
from policybridge_server.engine.failures import Failures
from policybridge_server.engine.pace import Pace
from policybridge_server.engine.worker import AbandonedError, Worker

_LOG = logging.getLogger(__name__)

_MOST_STUCK: Final = 4
"""Limit of hanging threads for one version. They cannot be stopped; beyond the limit the version stops answering."""

Run = Callable[[Model], list[Result]]
"""Evaluates some decisions with the given model."""

Done = Callable[[list[Result], float], None]
"""Called on the loop thread with the results and the seconds that they took."""


class Rules(NamedTuple):
    """How a version's model is run.

    Attributes:
        name: the version's name.
        inline: whether the model starts on the loop thread.
        allowed: seconds for one evaluation in a worker; ``None``: the model has its own time limit.
        load_allowed: seconds for loading the model again.
        movable: whether the model's pace decides where it runs.
        reload: loads the model again, after it has hung.

    """

    name: str
    inline: bool
    allowed: float | None
    load_allowed: float
    movable: bool
    reload: Callable[[], Model]


class ModelHost:
    """Runs one version's model on the loop thread or in a worker. Used on the loop thread.

    Attributes:
        model: the model; the loop thread calls it directly if there is no worker.
        worker: its thread evaluates; ``None``: the loop thread does.
        failures: counts the model's failures.
        counters: the version's other counters.
        trouble: why the version does not answer at present; empty if it does.

    Args:
        model: the loaded model.
        rules: where the model runs, and its time limits.
        loop: the loop of the loop thread; ``None``: the caller's thread evaluates.
        failures: counts the model's failures.
        counters: the version's other counters.

    """

    def __init__(
        self,
        model: Model,
        rules: Rules,
        loop: asyncio.AbstractEventLoop | None,
        failures: Failures,
        counters: VersionCounters,
    ) -> None:
        self.model = model
        self.failures = failures
        self.counters = counters
        self.trouble = ""
        self._name = rules.name
        self._rules = rules
        self._loop = loop
        self._pace = Pace()
        self._watched = False
        self._stuck: list[Worker] = []
        self._give_up: WeakMethod[Callable[[PolicyFailedError], None]] | None = None
        self.worker = None if rules.inline or loop is None else self._hire(loop)

    def on_hang(self, give_up: Callable[[PolicyFailedError], None]) -> None:
        """If the model hangs, call ``give_up`` with the error for all waiting observations."""
        # Weak, against a cycle: the version holds this host, and must be freed as soon as it is unloaded.
        self._give_up = WeakMethod(give_up)

    def _hire(self, loop: asyncio.AbstractEventLoop) -> Worker:
        return Worker(self._name, loop.call_soon_threadsafe, self._rules.allowed)

    def run(self, worker: Worker, run: Run, count: int, runs: int, done: Done) -> None:
        """Evaluate ``count`` decisions in ``runs`` runs of the model in ``worker``, the present worker."""

        def job() -> tuple[list[Result], float]:
            begun = perf_counter()
            results = self._evaluated(worker, run, count)
            return results, perf_counter() - begun

        def finished(answered: tuple[list[Result], float]) -> None:
            # By now the present worker may be another: the model may move before all results of its worker arrive.
            if worker.abandoned:
                # The waiting observations were already given an error.
                return
            results, seconds = answered
            if not all(isinstance(result, PolicyFailedError) for result in results):
                self.trouble = ""
            self._consider_return(seconds, runs, count)
            done(results, seconds)

        self._put(worker, job, finished)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Make a call on the loop thread later; ``None``: the model runs in a worker, or there is no loop."""
        return None if self._loop is None or self.worker is not None else self._loop.call_later(seconds, call)

    def _evaluated(self, worker: Worker, run: Run, count: int) -> list[Result]:
        try:
            return run(_Stepwise(self.model, worker))
        except AbandonedError:
            raise
        except BaseException as error:
            return [self.failures.add(error)] * count

    def _put(self, worker: Worker, job: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        worker.put(job, done)
        loop, allowed = self._loop, self._rules.allowed
        # When the model is freed, the loop may be closed.
        if not self._watched and allowed is not None and loop is not None and not loop.is_closed():
            self._watched = True
            loop.call_later(allowed, self._look)

    def was_slow(self, seconds: float, runs: int, count: int) -> None:
        """Note that a batch took too long on the loop thread; the model may move to a worker."""
        if self._rules.movable and self._loop is not None and self._pace.slow(seconds, runs, count):
            _LOG.info("%s took %.0f ms on the loop thread and is moved to a worker", self._name, seconds * 1e3)
            self.worker = self._hire(self._loop)

    def _consider_return(self, seconds: float, runs: int, count: int) -> None:
        worker = self.worker
        if self._rules.movable and worker is not None and worker.idle and self._pace.fast(seconds, runs, count):
            _LOG.info("%s has proved fast and is moved to the loop thread", self._name)
            worker.stop()
            self.worker = None

    def end(self, session: SessionView) -> None:
        """End ``session`` in a stateful model, after all decisions in the worker's queue."""

        def job() -> None:
            if not isinstance(self.model, StatefulModel):
                return
            try:
                self.model.end(session)
            except BaseException as error:
                self.failures.add(error)

        if self.worker is None:
            job()
        else:
            self._put(self.worker, job)

    def close(self) -> None:
        """Free the model, after all decisions in the worker's queue."""
        if self.worker is None:
            self.model.close()
        else:
            # Not by `_put`, which sets a timer on the loop: the loop may be closed.
            self.worker.put(self._close)
            self.worker.stop()

    def _close(self) -> None:
        # The model may have been replaced by now.
        self.model.close()

    def _look(self) -> None:
        """Replace the worker if it hangs; look again later while it has jobs."""
        worker, loop = self.worker, self._loop
        if worker is None or loop is None or worker.idle:
            self._watched = False
            return
        left = worker.left()
        if left <= 0:
            self._replace(worker, loop)
            left = self._rules.allowed or 0.0
        loop.call_later(left, self._look)

    def _replace(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.trouble = f"{self._name} gave no advice within {self._rules.allowed:g} s"
        _LOG.error(
            "%s; all waiting sessions get an error, and it is loaded again. It hangs at:\n%s",
            self.trouble,
            worker.stack(),
        )
        left = worker.abandon(self.model.close)
        # The hanging thread may go on at any time, so no other thread may use its model.
        self.model = _LostModel(self.model, f"{self._name} hung and is not loaded again yet")
        self._stuck = [each for each in [*self._stuck, worker] if each.alive]
        self.worker = new = self._hire(loop)
        for job in (lambda: self._load_again(new), *left):
            new.put(job)
        give_up = self._give_up() if self._give_up is not None else None
        if give_up is not None:
            give_up(PolicyFailedError(self.trouble))

    def _load_again(self, worker: Worker) -> None:
        worker.step(self._rules.load_allowed)
        if len(self._stuck) > _MOST_STUCK:
            self.model = _LostModel(self.model, f"{len(self._stuck)} threads hang in {self._name}; restart the server")
            return
        try:
            model = self._rules.reload()
        except BaseException as error:
            self.failures.add(error)
            self.model = _LostModel(self.model, f"{self._name} hung and could not be loaded again")
            return
        try:
            worker.step()
        except AbandonedError:
            model.close()
            raise
        self.model = model


class _Stepwise:
    """A model in a worker: each evaluation is a step with its own time limit."""

    def __init__(self, model: Model, worker: Worker) -> None:
        self.signature = model.signature
        self.batched = model.batched
        self.inline = model.inline
        self._model = model
        self._worker = worker

    @property
    def abandoned(self) -> bool:
        return self._worker.abandoned

    def evaluate(self, batch: Batch) -> Values:
        self._worker.step()
        return self._model.evaluate(batch)

    def close(self) -> None:
        self._model.close()


class _LostModel:
    """Replaces a model that hung: each evaluation fails, with the reason."""

    def __init__(self, model: Model, reason: str) -> None:
        self.signature: ModelSignature = model.signature
        self.batched = model.batched
        self.inline = model.inline
        self._reason = reason

    def evaluate(self, batch: Batch) -> Values:  # noqa: ARG002
        raise PolicyFailedError(self._reason)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""
