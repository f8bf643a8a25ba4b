"""A clock that the tests set."""

from dataclasses import dataclass, field

from policybridge_server.ledger.clock import Instant


@dataclass
class SettableClock:
    """Implements `Clock`: time passes by `wait`, and `put` sets the time of day alone."""

    instant: Instant = field(default_factory=lambda: Instant(wall=1e9, boot="first", uptime=100.0))

    def now(self) -> Instant:
        return self.instant

    def wait(self, seconds: float) -> None:
        self.instant = self.instant._replace(wall=self.instant.wall + seconds, uptime=self.instant.uptime + seconds)

    def put(self, seconds: float) -> None:
        """Set the time of day so much forward, or back."""
        self.instant = self.instant._replace(wall=self.instant.wall + seconds)

    def reboot(self, seconds: float) -> None:
        """Restart the machine, which is off for so long."""
        self.instant = Instant(self.instant.wall + seconds, f"after {self.instant.boot}", 1.0)
