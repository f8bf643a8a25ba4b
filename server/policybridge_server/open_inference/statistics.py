"""What the requests to one version came to, and how long they took."""

import time
from dataclasses import dataclass, field

from policybridge.inference import inference_service_pb2 as pb
from policybridge_serdes import PolicyVersion


@dataclass
class Sum:
    """How many times, and how many nanoseconds together."""

    count: int = 0
    nanoseconds: int = 0

    def add(self, nanoseconds: int) -> None:
        """Count once more."""
        self.count += 1
        self.nanoseconds += nanoseconds

    def to_pb(self) -> pb.StatisticDuration:
        """Write it."""
        return pb.StatisticDuration(count=self.count, ns=self.nanoseconds)


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
        """Note that the advice is there."""
        self.evaluated = time.perf_counter_ns()


@dataclass
class Statistics:
    """Sums over the requests of this protocol; for the loop thread."""

    answered: Sum = field(default_factory=Sum)
    failed: Sum = field(default_factory=Sum)
    waited: Sum = field(default_factory=Sum)
    read: Sum = field(default_factory=Sum)
    evaluated: Sum = field(default_factory=Sum)
    written: Sum = field(default_factory=Sum)
    observations: int = 0
    last: float = 0.0

    def add(self, observations: int, watch: Stopwatch) -> None:
        """Count a request that is answered now."""
        now = time.perf_counter_ns()
        self.answered.add(now - watch.begun)
        self.waited.add(watch.due - watch.begun)
        self.read.add(watch.read - watch.due)
        self.evaluated.add(watch.evaluated - watch.read)
        self.written.add(now - watch.evaluated)
        self.observations += observations
        self.last = time.time()

    def fail(self, watch: Stopwatch) -> None:
        """Count a request that failed."""
        self.failed.add(time.perf_counter_ns() - watch.begun)

    def to_pb(self, policy: PolicyVersion) -> pb.ModelStatistics:
        """Write them."""
        return pb.ModelStatistics(
            name=policy.name,
            version=str(policy.version),
            last_inference=int(self.last * 1000),
            inference_count=self.observations,
            execution_count=self.answered.count,
            inference_stats=pb.InferStatistics(
                success=self.answered.to_pb(),
                fail=self.failed.to_pb(),
                queue=self.waited.to_pb(),
                compute_input=self.read.to_pb(),
                compute_infer=self.evaluated.to_pb(),
                compute_output=self.written.to_pb(),
            ),
        )
