"""The last minutes: sessions, decisions and their latency, second by second. For the loop thread."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.counters import VersionCounters
from policybridge_server.publishing.peers import Alone
from policybridge_server.telemetry.merging import server_snapshot
from policybridge_server.transports.contract import Host

_SECONDS: Final = 300

_STAGES: Final = {"read": "read", "queue": "queued", "model": "evaluated", "answer": "answered"}
"""The stage of a decision → its histogram in `VersionCounters`."""

_Totals = tuple[int, ...]
"""Of a version: decisions, then the nanoseconds of each stage, since the server's start."""


class History:
    """Looks at the server's counters once a second; it costs decisions nothing.

    Args:
        host: the server.

    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._samples: deque[dict[str, Any]] = deque(maxlen=_SECONDS)
        engine = host.opener.engine
        self._totals = _count(engine.counters.versions)
        self._take(engine.counters.versions, engine.sessions)
        host.loop.spawn(self._watch())

    async def _watch(self) -> None:
        peers, engine = self._host.publisher.peers, self._host.opener.engine
        while True:
            await asyncio.sleep(1.0)
            own = engine.counters.versions
            if isinstance(peers, Alone):
                self._take(own, engine.sessions)
            else:
                with suppress(PolicyBridgeError):
                    versions = [each.counters for each in (await server_snapshot(self._host)).versions]
                    self._take(versions, sum(each.sessions for each in versions))

    def _take(self, versions: Sequence[VersionCounters], sessions: int) -> None:
        before, self._totals = self._totals, _count(versions)
        grown = {name: _grown(totals, before.get(name, ())) for name, totals in self._totals.items()}
        decisions = {name: made for name, (made, *_) in grown.items() if made}
        made = sum(decisions.values())
        spent = [sum(stage) for stage in list(zip(*grown.values(), strict=True))[1:]] if made else []
        self._samples.append(
            {
                "at": time.time(),
                "sessions": sessions,
                "decisions": decisions,
                "stages": {name: nanoseconds / made for name, nanoseconds in zip(_STAGES, spent, strict=False)},
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Give the samples, the oldest first: `stages` has the mean nanoseconds of a decision in each stage."""
        return {"samples": list(self._samples), "stages": list(_STAGES)}


def _count(versions: Sequence[VersionCounters]) -> dict[str, _Totals]:
    return {f"{each.policy}@{each.version}": _totals(each) for each in versions}


def _totals(version: VersionCounters) -> _Totals:
    return (version.decisions, *(getattr(version, name).total for name in _STAGES.values()))


def _grown(now: _Totals, before: _Totals) -> _Totals:
    """Return the increase of each number. A version that was unloaded may count from 0 again."""
    if not before or now[0] < before[0]:
        return now
    return tuple(number - old for number, old in zip(now, before, strict=True))
