"""The watch over the workers: one whose loop hangs is ended and replaced."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from policybridge_server.workers.exchange import Exchange
from policybridge_server.workers.member import Member
from policybridge_server.workers.table import BEAT_SECONDS, Row

_LOG = logging.getLogger(__name__)

_TOLD: Final = 5
"""Seconds after which a worker's silence is logged."""

_SHORTEST: Final = 10
"""Seconds of silence that a worker survives, however short the time limit of a decision is."""


class Watch:
    """Looks at the beats of all workers once a second. For the loop thread.

    Args:
        exchange: knows the workers.
        rows: of the workers, with their beats.
        limit: seconds of silence after which a worker is ended; at least 10.

    """

    def __init__(self, exchange: Exchange, rows: Sequence[Row], limit: float) -> None:
        self._exchange = exchange
        self._rows = rows
        self._limit = max(limit, _SHORTEST)
        self._beats = [0] * len(rows)

    async def run(self) -> None:
        """Watch until this is cancelled."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            for member in self._exchange.members:
                if member is not None and member.loops:
                    self._look(member)

    def _look(self, member: Member) -> None:
        """Count the looks at which nothing had changed: no clock, because this process may have been stopped itself."""
        before, self._beats[member.index] = self._beats[member.index], self._rows[member.index].beats
        if self._beats[member.index] != before:
            member.silent = 0
            return
        member.silent += 1
        if member.silent == _TOLD:
            _LOG.warning("%s has not answered for %d s; it is ended after %g s", member, _TOLD, self._limit)
        if member.silent >= self._limit:
            member.fault = f"was ended because it had not answered for {member.silent} s"
            member.kill()
