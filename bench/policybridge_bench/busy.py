"""Two regimes: quiet, and busy, where no core goes to sleep.

An idle core takes some 40 µs to wake up, about as long as an answer takes. On a machine that compiles, cores are awake.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from policybridge_bench.processes import server

_SPIN = "import os\nos.nice(19)\nprint('ready', flush=True)\nwhile True: pass"


@contextlib.contextmanager
def regime(*, busy: bool) -> Iterator[None]:
    """If ``busy``, keep every core awake in the body, by a process of the lowest priority on each."""
    with contextlib.ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)) if busy else ():
            spinner = stack.enter_context(server([sys.executable, "-c", _SPIN]))
            os.sched_setaffinity(spinner.pid, {core})
        yield
