"""A thread for a model that is too slow for the loop thread, or that is Python code of its author."""

import atexit
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_LOG = logging.getLogger(__name__)

Job = Callable[[], Any]

GRACE_SECONDS = 1.0
"""For which the process waits at its end for the job that runs."""


class AbandonedError(BaseException):
    """Raised in the thread of an abandoned worker, whose results are no longer needed."""


class Worker:
    """Runs jobs in order. Used on the loop thread, except `step`.

    Args:
        name: the thread's name.
        post: makes a call on the loop thread, like ``loop.call_soon_threadsafe``.
        allowed: seconds for each step of a job; ``None``: no limit.

    """

    def __init__(self, name: str, post: Callable[..., object], allowed: float | None = None) -> None:
        self._post = post
        self._allowed = allowed
        self._due: float | None = None
        self._abandoned = False
        self._last: Job | None = None
        # Two counters, so that only one thread writes each.
        self._put = self._finished = 0
        self._jobs: SimpleQueue[tuple[Job, Callable[[Any], None] | None] | None] = SimpleQueue()
        # A daemon thread: a policy that never returns must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        # Python stops daemon threads at any point; in PyTorch, freeing a model, that aborts the process.
        atexit.register(self._end)

    def put(self, job: Job, done: Callable[[Any], None] | None = None) -> None:
        """Run ``job``, then ``done`` with its result on the loop thread. A job that raises is logged."""
        self._put += 1
        self._jobs.put((job, done))

    @property
    def idle(self) -> bool:
        """Whether all jobs are finished."""
        return self._put == self._finished

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    @property
    def abandoned(self) -> bool:
        """Whether the worker was abandoned."""
        return self._abandoned

    def left(self) -> float:
        """Give the seconds that the present step still has; below 0 it takes too long."""
        due, allowed = self._due, self._allowed or 0.0
        return allowed if due is None else due - time.monotonic()

    def step(self, allowed: float | None = None) -> None:
        """Begin another step of the job that runs, in its thread; it has ``allowed`` seconds in place of the usual.

        Raises:
            AbandonedError: the worker was abandoned.

        """
        if self._abandoned:
            raise AbandonedError
        seconds = self._allowed if allowed is None else allowed
        self._due = None if seconds is None else time.monotonic() + seconds

    def stack(self) -> str:
        """Return the thread's present traceback."""
        return stack_of(self._thread)

    def stop(self) -> None:
        """Let the thread end after the jobs that it has by now."""
        self._jobs.put(None)

    def abandon(self, last: Job) -> list[Job]:
        """Give the worker up. Its results are dropped; when the job that runs returns, ``last`` is run, and no other.

        Returns:
            the waiting jobs whose results are not needed.

        """
        self._last, self._abandoned = last, True
        atexit.unregister(self._end)
        waiting: list[Job] = []
        with suppress(Empty):
            while (taken := self._jobs.get_nowait()) is not None:
                waiting += [taken[0]] if taken[1] is None else []
        self.stop()
        return waiting

    def _run(self) -> None:
        while not self._abandoned and (taken := self._jobs.get()) is not None:
            self._work(*taken)
        if self._last is not None:
            self._work(self._last, None)
        atexit.unregister(self._end)

    def _work(self, job: Job, done: Callable[[Any], None] | None) -> None:
        self._due = None if self._allowed is None else time.monotonic() + self._allowed
        try:
            result = job()
        except AbandonedError:
            return
        except BaseException:
            _LOG.exception("a job of the worker %s failed", self._thread.name)
            return
        finally:
            self._due = None
            self._finished += 1
        if done is not None and not self._abandoned:
            # After the loop is closed, nobody waits for the result; the other jobs are still to be done.
            with suppress(RuntimeError):
                self._post(done, result)

    def _end(self) -> None:
        self.stop()
        self._thread.join(GRACE_SECONDS)


def stack_of(thread: threading.Thread) -> str:
    """Return the present traceback of ``thread``."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "(the thread has ended)"
