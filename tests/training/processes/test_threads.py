"""Threads that work for another one, which may be interrupted between any two of its steps."""

import concurrent.futures._base
import concurrent.futures.thread
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Any

import pytest

from policybridge_train.processes import process, threads
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import Threads, for_each, in_order
from tests.interrupts import interrupted_unnoticed

FUTURES = (concurrent.futures.thread, concurrent.futures._base)
LIBRARIES = {each.__file__ for each in (process, threads, contextlib, threading, *FUTURES)}
AT_ONCE = 30.0


@contextmanager
def interrupted_at(step: int) -> Iterator[None]:
    """Raise an interrupt at a step that this thread does in the code of `LIBRARIES`, as a signal's handler does."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename not in LIBRARIES:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            left = -1
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def compiled(number: int, running: Running) -> int:
    """Take two milliseconds, or until all are ended."""
    ended = Event()
    with running.counted(ended.set):
        ended.wait(0.002)
    return number


def all_compiled(running: Running) -> list[int]:
    return list(for_each(lambda number: compiled(number, running), range(3), 2, running))


def test_an_interrupt_at_any_step_ends_the_work_and_waits_for_nothing_that_never_comes() -> None:
    step, found = 0, None
    while found is None:
        step += 1
        running = Running()
        with contextlib.suppress(KeyboardInterrupt), interrupted_at(step):
            found = all_compiled(running)
    assert found == [0, 1, 2]
    # There were steps at which it was interrupted.
    assert step > 100


def test_a_signal_that_does_not_end_the_wait_for_a_result_interrupts_all_the_same() -> None:
    stopped = Event()
    in_time = []
    with pytest.raises(KeyboardInterrupt), interrupted_unnoticed("_next_of"):
        list(in_order(lambda _: in_time.append(stopped.wait(AT_ONCE)), range(1), 1, stopped.set))
    assert in_time == [True]


def test_results_come_in_the_order_of_the_items_whichever_ends_first() -> None:
    second = Event()

    def job(number: int) -> int:
        if not number:
            assert second.wait(AT_ONCE)
        second.set()
        return number

    assert [ended() for ended in in_order(job, range(2), 2)] == [0, 1]


def test_what_a_job_raises_is_raised_where_its_result_is_wanted() -> None:
    def job(number: int) -> float:
        return 1 / number

    ended = list(in_order(job, (1, 0, 2), 1))
    assert (ended[0](), ended[2]()) == (1, 0.5)
    with pytest.raises(ZeroDivisionError):
        ended[1]()


def test_what_has_not_begun_never_begins_and_what_has_begun_is_waited_for() -> None:
    begun, go = Event(), Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        assert go.wait(AT_ONCE)
        done.append(1)

    with Threads[int, None](1) as working:
        working.submit(1, first)
        working.submit(2, lambda: done.append(2))
        assert begun.wait(AT_ONCE)
        threading.Timer(0.01, go.set).start()
    assert done == [1]
