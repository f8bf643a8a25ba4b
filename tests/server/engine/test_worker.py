"""A worker's thread at the end of its process."""

import subprocess
import sys
import time

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
