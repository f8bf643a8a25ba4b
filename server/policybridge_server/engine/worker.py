"""A thread for a model that is too slow for the loop thread, or that is Python code of its author."""

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = Callable[[], Any]

GRACE_SECONDS = 1.0
"""For which the process waits at its end for the job that runs."""


class Worker:
    """Runs jobs in order.

    Args:
        name: of the thread.
        post: makes a call on the loop thread, like ``loop.call_soon_threadsafe``.

    """

    def __init__(self, name: str, post: Callable[..., object]) -> None:
        self._post = post
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon thread: a policy that never returns must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        # Python stops daemon threads at any point; in PyTorch, freeing a model, that aborts the process.
        atexit.register(self._end)

    def put(self, job: Job, done: Callable[[Any], None] | None = None) -> None:
        """Run ``job``, which must not raise, then ``done`` with its result on the loop thread."""
        post = self._post
        self._jobs.put(job if done is None else lambda: post(done, job()))

    def stop(self) -> None:
        """Let the thread end after the jobs that it has by now."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        atexit.unregister(self._end)

    def _end(self) -> None:
        self.stop()
        self._thread.join(GRACE_SECONDS)
