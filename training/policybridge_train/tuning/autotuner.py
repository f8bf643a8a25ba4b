"""Tuning many modules: a compile of each in turn, several at a time, and the best so far in the store."""

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import Threads
from policybridge_train.tuning.module import ModuleTuning


class Autotuner:
    """Runs searches until all are done.

    Args:
        tunings: what to tune.
        jobs: compiles at a time.
        running: the compilers that run; they are ended when an exception ends the search.
        until: when to end, by `time.monotonic`; searches close early enough for their last compiles to end by
            then.

    """

    def __init__(
        self, tunings: Sequence[ModuleTuning], jobs: int, running: Running, until: float | None = None
    ) -> None:
        self._tunings = tunings
        self._waiting = deque(tunings)
        self._jobs = jobs
        self._running = running
        self._until = until
        self._under_way: list[ModuleTuning] = []
        """The module of each compile that is under way."""
        self._held: set[ModuleTuning] = set()
        """Modules of which no further compile can begin before one that is under way has ended."""

    def run(self, stepped: Callable[[ModuleTuning], None]) -> None:
        """Compile until no search is left; call ``stepped`` after each compile, in this thread.

        An exception ends the running compilers; their compiles do not count.
        """
        try:
            with Threads[ModuleTuning, bool](self._jobs) as threads:
                try:
                    self._run(threads, stepped)
                except BaseException:
                    self._running.end()
                    raise
        finally:
            # Some of these may have ended while the exception was on its way.
            for tuning in self._under_way:
                stepped(tuning)

    def _run(self, threads: Threads[ModuleTuning, bool], stepped: Callable[[ModuleTuning], None]) -> None:
        self._fill(threads)
        while self._under_way:
            tuning, ended = threads.take()
            began = ended()
            stepped(tuning)
            self._under_way.remove(tuning)
            self._ended(tuning, began=began)
            self._fill(threads)

    def _fill(self, threads: Threads[ModuleTuning, bool]) -> None:
        self._close_in_time()
        while len(self._under_way) < self._jobs and (tuning := self._next()):
            self._under_way.append(tuning)
            threads.submit(tuning, tuning.step)

    def _close_in_time(self) -> None:
        if self._until is None:
            return
        needed = sum(tuning.seconds_to_close for tuning in self._tunings) / self._jobs
        if monotonic() + needed >= self._until:
            self._until = None
            for tuning in self._tunings:
                tuning.close()

    def _next(self) -> ModuleTuning | None:
        """Give the module whose turn it is; where none waits, one that another compile is under way of."""
        if self._waiting:
            return self._waiting.popleft()
        return next((tuning for tuning in self._under_way if tuning not in self._held), None)

    def _ended(self, tuning: ModuleTuning, *, began: bool) -> None:
        if began:
            self._held.discard(tuning)
        else:
            self._held.add(tuning)
        if tuning in self._under_way or tuning in self._waiting:
            return
        self._held.discard(tuning)
        if not tuning.done:
            self._waiting.append(tuning)
