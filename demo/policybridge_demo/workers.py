"""Running several compilations at once in worker processes."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from policybridge_demo.corpus import Module

_T = TypeVar("_T")


def for_each(job: Callable[[Module], _T], modules: Iterable[Module], jobs: int) -> Iterator[tuple[int, _T]]:
    """Run ``job`` for all modules, ``jobs`` at a time; yield the module's index and the result of each, as they end.

    The jobs run in processes, because threads would compete for one interpreter lock. When a job fails or the caller
    stops iterating, jobs that have not started are cancelled.

    Raises:
        Exception: the exception of the first job that failed.

    """
    # Not fork: it would copy the state of other threads in the middle of their work.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _leave_interrupts_to_the_parent) as pool:
        futures = {pool.submit(job, module): number for number, module in enumerate(modules)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    # A terminal sends SIGINT to all processes. The parent then starts no more jobs; running ones end in a second.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
