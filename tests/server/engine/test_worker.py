"""A worker's thread, when it is given up and at the end of its process."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from policybridge_server.engine.worker import AbandonedError, Worker
from tests.server.publishing.policies import wait_for

PROGRAM = """
import time
from policybridge_server.engine.worker import Worker

worker = Worker("policy@1", print)
worker.put(lambda: (time.sleep({seconds}), print("done", flush=True)))
"""


def run(seconds: float) -> str:
    program = PROGRAM.format(seconds=seconds)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout


def test_the_job_that_runs_when_the_process_ends_is_finished() -> None:
    assert run(0.2) == "done\n"


def test_a_job_that_never_returns_does_not_keep_the_process() -> None:
    started = time.monotonic()
    assert run(60) == ""
    assert time.monotonic() - started < 50


def test_an_abandoned_worker_drops_its_results_gives_its_waiting_jobs_back_and_runs_the_last_one() -> None:
    done, ran = list[str](), list[str]()
    begun, hang, over = threading.Event(), threading.Event(), threading.Event()
    worker = Worker("policy@1", lambda call, result: call(result), allowed=60)

    def hanging() -> str:
        begun.set()
        hang.wait(60)
        with pytest.raises(AbandonedError):
            worker.step()
        return "late"

    worker.put(lambda: "first", done.append)
    worker.put(hanging, done.append)
    worker.put(lambda: ran.append("wanted no more"), done.append)
    worker.put(lambda: ran.append("end"))
    assert begun.wait(60)
    assert (done, worker.abandoned, worker.idle) == (["first"], False, False)
    assert 0 < worker.left() <= 60
    (waiting,) = worker.abandon(over.set)
    hang.set()
    assert over.wait(60)
    wait_for(lambda: not worker.alive)
    assert (done, ran, worker.abandoned) == (["first"], [], True)
    waiting()
    assert ran == ["end"]


def test_a_result_that_comes_after_the_loop_is_closed_costs_the_next_job_nothing() -> None:
    over, done = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    worker = Worker("policy@1", loop.call_soon_threadsafe)
    loop.close()
    worker.put(lambda: "late", done.append)
    worker.put(over.set)
    worker.stop()
    assert over.wait(10)
    assert done == []


def test_a_step_has_its_own_time_and_a_job_that_raises_costs_the_next_one_nothing() -> None:
    done, left = list[str](), list[float]()
    worker = Worker("policy@1", lambda call, result: call(result), allowed=10)

    def steps() -> str:
        left.append(worker.left())
        worker.step(1000)
        left.append(worker.left())
        worker.step()
        left.append(worker.left())
        return "done"

    worker.put(lambda: 1 // 0, done.append)
    worker.put(steps, done.append)
    worker.stop()
    wait_for(lambda: not worker.alive)
    assert (done, worker.idle) == (["done"], True)
    assert left[0] <= 10 < left[1] <= 1000
    assert left[2] <= 10
    assert worker.left() == 10, "no job runs"
