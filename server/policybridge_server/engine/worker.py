"""A thread for a model that is too slow for the loop, or is code of somebody else."""

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = Callable[[], Any]

GRACE_SECONDS = 1.0
"""For the job that runs when the process ends."""


class Worker:
    """Runs jobs in order.

    Args:
        name: of the thread.
        post: hands a call over to the loop thread, like ``loop.call_soon_threadsafe``.

    """

    def __init__(self, name: str, post: Callable[..., object]) -> None:
        self._post = post
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon: a policy that never returns must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        # Python stops daemons wherever they are; in PyTorch's own code, freeing a model say, that aborts the process.
        atexit.register(self._leave)

    def put(self, job: Job, done: Callable[[Any], None] | None = None) -> None:
        """Run ``job``, which must not raise, then ``done`` with its result on the loop thread."""
        post = self._post
        self._jobs.put(job if done is None else lambda: post(done, job()))

    def stop(self) -> None:
        """Let the thread end after the jobs that it has."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        atexit.unregister(self._leave)

    def _leave(self) -> None:
        self.stop()
        self._thread.join(GRACE_SECONDS)
