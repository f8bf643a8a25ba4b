"""The lifetime of a ledger: the time that ages its sessions, independent of the machine's clock."""

from policybridge_server.ledger.clock import Clock, Instant, seconds_between
from policybridge_server.ledger.database import Database

# Sessions of a ledger that has no births yet: an older one began no later than those after it, whatever its own stamp.
_ADD_BIRTHS = """
INSERT INTO births (session, lived)
SELECT number, -max(0, ? - min(opened) OVER (ORDER BY number DESC)) FROM sessions
"""


class Lifetime:
    """Counts the seconds of a ledger's life; they never fall, and setting the clock does not change them.

    Args:
        database: in a transaction.
        clock: of the machine.

    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        now = clock.now()
        row = database.run("SELECT lived, wall, boot, uptime FROM lifetime").fetchone()
        if row is None:
            database.run("INSERT INTO lifetime VALUES (0, 0, '', 0)")
            database.run(_ADD_BIRTHS, now.wall)
            self._lived, self._seen = 0.0, now
        else:
            lived, *seen = row
            self._lived, self._seen = lived, Instant(*seen)
        self.save()

    def lived(self) -> float:
        """Give the seconds so far."""
        now = self._clock.now()
        self._lived += seconds_between(self._seen, now)
        self._seen = now
        return self._lived

    def save(self) -> None:
        """Write down the seconds so far; call it in a transaction."""
        lived, seen = self.lived(), self._seen
        self._database.run(
            "UPDATE lifetime SET lived = ?, wall = ?, boot = ?, uptime = ?", lived, seen.wall, seen.boot, seen.uptime
        )
