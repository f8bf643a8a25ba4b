"""Counters of the server: plain numbers, changed once for each batch or turn.

Nothing here is formatted, locked or looked up while a compiler waits: a batch adds to the numbers of its own version.
All numbers are changed on the loop thread, except those of loads, which one thread at a time changes.
"""

from collections import Counter
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Final

from policybridge_core.errors import Status

_NAMES: Final = {int(status): status.name for status in Status}

_BITS: Final = 64
"""Buckets of a histogram: a number of nanoseconds has fewer bits."""

_MOST_LOADED: Final = 200
"""Versions that are counted each for itself while they are loaded; all others are counted together."""

_MOST_GONE: Final = 16
"""Unloaded versions whose numbers are kept, for the last scrape and for another load."""

_MOST_RECENT: Final = 4096
"""Limit of ended sessions whose version is kept, because their outcome may come later."""

OUTCOMES: Final = ("ok", "fallback", "failed", "error")
"""The states of outcomes that our own clients report; every other one counts as ``other``, and none as ``unset``."""

OTHER: Final = "other"


class Histogram:
    """Counts numbers by how many bits they have: bucket ``i`` holds those from ``2**(i - 1)`` to ``2**i - 1``.

    Attributes:
        buckets: how many numbers of each size there were.
        total: their sum.

    """

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * _BITS
        self.total = 0

    def add(self, number: int, times: int = 1) -> None:
        """Count ``number``, 0 or more, ``times`` times."""
        self.buckets[number.bit_length()] += times
        self.total += number * times

    def copy(self) -> "Histogram":
        """Give a copy that does not change."""
        made = Histogram()
        made.buckets, made.total = self.buckets.copy(), self.total
        return made

    @property
    def count(self) -> int:
        """How many numbers there were."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float:
        """Return the quantile ``share`` of the numbers, taken as evenly spread in their bucket; 0 without any."""
        left = share * self.count
        for bits, count in enumerate(self.buckets):
            if count and left <= count:
                low = 1 << (bits - 1) if bits else 0
                return low + left / count * ((1 << bits) - low)
            left -= count
        return 0.0


class VersionCounters:
    """The numbers of one version of a policy.

    Attributes:
        policy: the policy's name.
        version: the version's number, as text.
        read: nanoseconds from the wake-up of the loop to the end of reading and decoding, for each decision.
        queued: … of its wait until the model took it.
        evaluated: … of the model's run.
        answered: … of encoding and sending, until its whole batch was answered.
        batches: observations of each batch.
        opened: number of opened sessions.
        closed: number of ended sessions.
        outcomes: reports of clients by status, one of `OUTCOMES`, ``other`` or ``unset``.
        fallbacks: decisions that clients report to have made without the policy.
        made_by_clients: decisions that clients made by the policy's form.
        asked_by_clients: decisions that clients asked for which have the policy's form.
        checked: reported decisions that the server made again.
        differing: checked decisions in which the server's advice is another one.

    """

    __slots__ = (
        "answered",
        "asked_by_clients",
        "batches",
        "checked",
        "closed",
        "differing",
        "evaluated",
        "fallbacks",
        "made_by_clients",
        "opened",
        "outcomes",
        "policy",
        "queued",
        "read",
        "version",
    )

    def __init__(self, policy: str, version: str) -> None:
        self.policy = policy
        self.version = version
        self.read, self.queued, self.evaluated, self.answered = (Histogram() for _ in range(4))
        self.batches = Histogram()
        self.opened = self.closed = 0
        self.outcomes: Counter[str] = Counter()
        self.fallbacks = 0.0
        self.made_by_clients = self.asked_by_clients = self.checked = self.differing = 0

    @property
    def decisions(self) -> int:
        """How many decisions it has made, failed ones included."""
        return self.batches.total

    @property
    def sessions(self) -> int:
        """How many sessions are on it."""
        return self.opened - self.closed

    def copy(self) -> "VersionCounters":
        """Give a copy that does not change."""
        made = VersionCounters(self.policy, self.version)
        made.read, made.queued = self.read.copy(), self.queued.copy()
        made.evaluated, made.answered = self.evaluated.copy(), self.answered.copy()
        made.batches, made.outcomes = self.batches.copy(), self.outcomes.copy()
        made.opened, made.closed, made.fallbacks = self.opened, self.closed, self.fallbacks
        made.made_by_clients, made.checked, made.differing = self.made_by_clients, self.checked, self.differing
        made.asked_by_clients = self.asked_by_clients
        return made

    def batch(self, count: int, read: int, queued: int, evaluated: int, answered: int) -> None:
        """Count a batch of ``count`` decisions and the nanoseconds that it spent in each stage."""
        # Written out: a loop, or `Histogram.add`, would take twice as long, and all clients wait for it.
        sizes, first, second, third, last = self.batches, self.read, self.queued, self.evaluated, self.answered
        sizes.buckets[count.bit_length()] += 1
        sizes.total += count
        first.buckets[read.bit_length()] += count
        first.total += read * count
        second.buckets[queued.bit_length()] += count
        second.total += queued * count
        third.buckets[evaluated.bit_length()] += count
        third.total += evaluated * count
        last.buckets[answered.bit_length()] += count
        last.total += answered * count

    def reported(self, status: str, values: Mapping[str, float]) -> None:
        """Count the outcome of one session. A compilation reports the same one for each session that it had."""
        known = status if status in OUTCOMES else OTHER if status else "unset"
        self.outcomes[known] += 1
        own = values.get("defaults", 0.0) + values.get("fallbacks", 0.0)
        if 0 < own < float("inf"):
            self.fallbacks += own / max(1.0, values.get("sessions", 1.0))


class Counters:
    """All numbers of one server.

    Attributes:
        woke: when the events of this turn arrived, by `time.perf_counter_ns`.
        turns: nanoseconds that the loop was busy between two waits.
        errors: errors sent to clients, by transport and name of the status.
        publications: number of versions, by ``published`` and ``refused``.
        loads: number of loaded versions.
        load_failures: number of versions that failed to load.
        load_seconds: seconds of all loads.
        unloads: number of unloaded versions.

    """

    def __init__(self) -> None:
        self.woke = perf_counter_ns()
        self.turns = Histogram()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.publications: Counter[str] = Counter(published=0, refused=0)
        self.loads = self.load_failures = self.unloads = 0
        self.load_seconds = 0.0
        self._loaded: dict[tuple[str, str], VersionCounters] = {}
        self._gone: dict[tuple[str, str], VersionCounters] = {}
        self._recent: dict[str, VersionCounters] = {}
        self._other = VersionCounters(OTHER, "")

    def version(self, policy: str, number: int) -> VersionCounters:
        """Give the numbers of a version: its old numbers, if it was loaded before."""
        key = (policy, str(number))
        known = self._loaded.get(key) or self._gone.get(key)
        if known is not None:
            return known
        return self._other if len(self._loaded) >= _MOST_LOADED else VersionCounters(*key)

    def came(self, version: VersionCounters) -> None:
        """Count a version that sessions may get from now on."""
        key = (version.policy, version.version)
        self._gone.pop(key, None)
        self._loaded[key] = version

    def left(self, version: VersionCounters) -> None:
        """Count a version that is unloaded."""
        self.unloads += 1
        key = (version.policy, version.version)
        if version is self._other or self._loaded.pop(key, None) is None:
            return
        while len(self._gone) >= _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._gone[key] = version

    @property
    def versions(self) -> list[VersionCounters]:
        """The numbers of the loaded versions, and of the last unloaded ones."""
        return [*self._loaded.values(), *self._gone.values()]

    def closed(self, session_id: str, version: VersionCounters) -> None:
        """Count the end of a session, and keep its version for a later outcome."""
        version.closed += 1
        while len(self._recent) >= _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[session_id] = version

    def version_of(self, session_id: str) -> VersionCounters:
        """Return the numbers of an ended session's version, for its outcome."""
        recent = self._recent.get(session_id)
        if recent is None:
            self._loaded.setdefault((OTHER, ""), self._other)
            return self._other
        return recent

    def told(self, transport: str, status: int) -> None:
        """Count an error sent to a client, by the number of its gRPC status."""
        self.errors[transport, _NAMES.get(status, str(status))] += 1
