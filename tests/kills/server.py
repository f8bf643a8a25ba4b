"""A server; the driver sets the clock of its ledger, if it cannot set the clock of the process."""

import sys
from pathlib import Path

from policybridge_server.config import make_config
from policybridge_server.daemon import serve
from policybridge_server.ledger.clock import Instant, SystemClock
from policybridge_server.workers.parent import serve_with_workers
from tests.kills.messages import Serving


class JumpingClock:
    """The machine's clock, wrong by the seconds that a file says; the uptime is right, as it is on a real machine."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        self._clock = SystemClock()

    def now(self) -> Instant:
        """Give the time."""
        now = self._clock.now()
        offset = int.from_bytes(self._offset.read_bytes(), sys.byteorder, signed=True)
        return now._replace(wall=now.wall + offset)


def run(task: Serving) -> None:
    """Serve."""
    config = make_config(None, task.config)
    if config.workers > 1:
        serve_with_workers(config)
    else:
        serve(config, JumpingClock(Path(task.offset)) if task.offset else None)
