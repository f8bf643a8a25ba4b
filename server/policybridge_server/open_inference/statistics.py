"""The state of each loaded version: the plans of its requests' formats, and its statistics.

They tell how many requests were answered, how many failed, and how long they took.
"""

import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from policybridge.inference import inference_service_pb2 as pb
from policybridge_serdes import PolicyVersion
from policybridge_server.bounded import BoundedCache
from policybridge_server.engine.batcher import Batcher
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.open_inference.plan import InferPlan, make_plan

_MOST_PLANS: Final = 64
_LARGEST_FORMAT: Final = 1 << 16
"""Bytes. Longer formats are planned for each request: clients must not fill the memory with them."""


class Stopwatch:
    """The times of one request, from its arrival on; by `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self.begun = self.due = self.read = self.evaluated = time.perf_counter_ns()

    def is_due(self) -> None:
        """Note that its turn has come: nothing of its sequence is before it."""
        self.due = time.perf_counter_ns()

    def is_read(self) -> None:
        """Note that its observations are understood."""
        self.read = time.perf_counter_ns()

    def is_evaluated(self) -> None:
        """Record the time of the advice."""
        self.evaluated = time.perf_counter_ns()


class Statistics:
    """Sums over the requests of this protocol to one version, in nanoseconds. For the loop thread."""

    def __init__(self) -> None:
        self._answered = self._observations = self._failed = 0
        self._total = self._queue = self._read = self._evaluated = self._written = self._failing = 0
        self._last = 0.0

    def add(self, observations: int, watch: Stopwatch) -> None:
        """Count a request that is answered now."""
        now = time.perf_counter_ns()
        self._answered += 1
        self._observations += observations
        self._total += now - watch.begun
        self._queue += watch.due - watch.begun
        self._read += watch.read - watch.due
        self._evaluated += watch.evaluated - watch.read
        self._written += now - watch.evaluated
        self._last = time.time()

    def fail(self, watch: Stopwatch) -> None:
        """Count a request that failed now."""
        self._failed += 1
        self._failing += time.perf_counter_ns() - watch.begun

    def to_pb(self, policy: PolicyVersion) -> pb.ModelStatistics:
        """Make the message of the statistics."""
        sums = {
            "success": self._total,
            "queue": self._queue,
            "compute_input": self._read,
            "compute_infer": self._evaluated,
            "compute_output": self._written,
        }
        durations = {name: pb.StatisticDuration(count=self._answered, ns=ns) for name, ns in sums.items()}
        failures = pb.StatisticDuration(count=self._failed, ns=self._failing)
        return pb.ModelStatistics(
            name=policy.name,
            version=str(policy.version),
            last_inference=int(self._last * 1000),
            inference_count=self._observations,
            execution_count=self._answered,
            inference_stats=pb.InferStatistics(fail=failures, **durations),
        )


class VersionState:
    """One version's. It must not hold the version, because it lives only as long as the version is loaded."""

    def __init__(self) -> None:
        self.statistics = Statistics()
        self.plans: BoundedCache[bytes, InferPlan] = BoundedCache(_MOST_PLANS)

    def plan(self, request_format: bytes, loaded: LoadedVersion, schedule: Callable[[Batcher], None]) -> InferPlan:
        """Give the plan for requests of this format; see ``make_plan``."""
        plan = self.plans.get(request_format)
        if plan is None:
            plan = make_plan(request_format, loaded, schedule)
            if len(request_format) <= _LARGEST_FORMAT:
                self.plans.put(request_format, plan)
        return plan


class VersionStates:
    """Those of all versions that were asked and are still loaded."""

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[LoadedVersion, VersionState] = WeakKeyDictionary()

    def of(self, loaded: LoadedVersion) -> VersionState:
        """Give the state of one version."""
        state = self._states.get(loaded)
        if state is None:
            state = self._states[loaded] = VersionState()
        return state

    def drop_unused(self) -> bool:
        """Drop the plans that were not used since the last call; return whether any are left.

        Clients of a version whose plans are kept count as bound to it, and a new version must accept them.
        """
        left = [state.plans.drop_unused() for state in self._states.values()]
        return any(left)
