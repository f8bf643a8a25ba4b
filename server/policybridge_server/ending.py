"""The end of the server's process, even if policies leave threads running."""

import logging
import os
import threading
import time
from typing import Final

_LOG = logging.getLogger(__name__)

_LEFTOVERS: Final = 5.0
"""Seconds that threads and `atexit` functions of policies and frameworks have after the server has ended."""


def end_in_time() -> None:
    """End the process some seconds after its main thread, even if other threads still run.

    Call it when all data are written. Python waits for every thread that is no daemon, and for every
    function of `atexit`, so that a sleeping one would keep a drained server alive for ever.
    """
    threading.Thread(target=_watch, name="policybridge-end", daemon=True).start()


def _watch() -> None:
    # The main thread counts as ended as soon as the interpreter begins to shut down.
    threading.main_thread().join()
    time.sleep(_LEFTOVERS)
    _LOG.warning("the server has ended, and %s %g s later: the process ends now", _left(), _LEFTOVERS)
    os._exit(0)


def _left() -> str:
    main = threading.main_thread()
    names = [thread.name for thread in threading.enumerate() if thread is not main and not thread.daemon]
    if names:
        return f"a policy's threads ({', '.join(names)}) still run"
    return "a function that a policy gave to atexit still runs"
