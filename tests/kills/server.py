"""A server whose clock the driver sets."""

from dataclasses import replace
from pathlib import Path

from policybridge_server.config import make_config
from policybridge_server.daemon import serve
from policybridge_server.ledger.clock import Instant, SystemClock
from tests.kills.messages import Serving


class JumpingClock:
    """The machine's clock, wrong by the seconds that a file says; the uptime is right, as it is on a real machine."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        self._clock = SystemClock()

    def now(self) -> Instant:
        """Give the time."""
        now = self._clock.now()
        return replace(now, wall=now.wall + float(self._offset.read_text()))


def run(task: Serving) -> None:
    """Serve."""
    serve(make_config(None, task.config), JumpingClock(Path(task.offset)))
