"""The clock of a ledger: the time of day, which may be set at any moment, and the uptime, which nobody can set."""

import time
import uuid
from pathlib import Path
from typing import Final, NamedTuple, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Instant(NamedTuple):
    """One moment.

    Attributes:
        wall: seconds since 1970, by the machine's clock.
        boot: names the boot of the machine; uptimes of one boot can be compared.
        uptime: seconds since the boot, including those in which the machine slept.

    """

    wall: float
    boot: str
    uptime: float


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> Instant:
        """Give the time."""


class SystemClock:
    """The clock of the machine."""

    def __init__(self) -> None:
        try:
            self._boot = _BOOT_ID.read_text().strip()
        except OSError:
            # Every process counts as a boot of its own.
            self._boot = uuid.uuid4().hex

    def now(self) -> Instant:
        """Give the time."""
        return Instant(time.time(), self._boot, time.clock_gettime(_UPTIME))


def seconds_between(earlier: Instant, later: Instant) -> float:
    """Give the seconds that passed, never less than 0.

    Within one boot this does not depend on the clock. After a restart of the machine only the time of day
    is known.
    """
    same_boot = earlier.boot == later.boot
    return max(0.0, later.uptime - earlier.uptime if same_boot else later.wall - earlier.wall)
