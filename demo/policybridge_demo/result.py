"""The result of the demo: sums over the modules, for the table and for the JSON file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from policybridge_demo.compilation import Built, Tally


@dataclass(frozen=True)
class Pair:
    """One module, compiled without PolicyBridge and with the policy's decisions."""

    plain: Built
    asking: Built
    tally: Tally


@dataclass(frozen=True)
class Sums:
    """Sums over several modules.

    Attributes:
        identical: number of objects that are byte for byte the same as without the policy.
        agreement: share of decisions in which LLVM decides the same; ``None`` if LLVM's decisions are not known.

    """

    modules: int
    decisions: int
    inlined: int
    agreement: float | None
    plain_text: int
    text: int
    identical: int

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "Sums":
        """Sum up the modules."""
        compared = sum(pair.tally.compared for pair in pairs)
        return cls(
            modules=len(pairs),
            decisions=sum(pair.tally.decisions for pair in pairs),
            inlined=sum(pair.tally.inlined for pair in pairs),
            agreement=sum(pair.tally.agreed for pair in pairs) / compared if compared else None,
            plain_text=sum(pair.plain.text for pair in pairs),
            text=sum(pair.asking.text for pair in pairs),
            identical=sum(pair.plain.digest == pair.asking.digest for pair in pairs),
        )


@dataclass(frozen=True)
class DemoResult:
    """The result of the whole demo.

    Attributes:
        backend: the format to which the policy was exported; ``None`` if it was not exported.
        jobs: number of compilations at a time.
        plain_seconds: wall time of all compilations without the policy.
        seconds: wall time of all compilations with the policy.

    """

    policy: str
    backend: str | None
    compiler: str
    jobs: int
    pairs: Sequence[Pair]
    plain_seconds: float
    seconds: float

    @property
    def total(self) -> Sums:
        """All modules together."""
        return Sums.of(self.pairs)

    @property
    def libraries(self) -> Mapping[str, Sums]:
        """The modules of each library together."""
        names = sorted({pair.plain.module.library for pair in self.pairs})
        return {name: Sums.of([pair for pair in self.pairs if pair.plain.module.library == name]) for name in names}

    @property
    def rate(self) -> float:
        """Decisions per second of all compilers together."""
        return self.total.decisions / self.seconds

    @property
    def latency_us(self) -> tuple[float, float]:
        """The median and the 99th percentile of the time that a compiler waited for a decision, in microseconds."""
        nanoseconds = np.concatenate([np.asarray(pair.tally.latencies, np.int64) for pair in self.pairs])
        p50, p99 = np.percentile(nanoseconds, [50, 99]) / 1000 if len(nanoseconds) else (0.0, 0.0)
        return float(p50), float(p99)

    @property
    def fallbacks(self) -> Sequence[str]:
        """The reasons of the compilations that LLVM finished by itself."""
        return [pair.tally.fallback for pair in self.pairs if pair.tally.fallback is not None]

    def to_json(self) -> Mapping[str, object]:
        """Return the content of the JSON file."""
        p50, p99 = self.latency_us
        return {
            "policy": self.policy,
            "backend": self.backend,
            "compiler": self.compiler,
            "jobs": self.jobs,
            "plain_seconds": round(self.plain_seconds, 3),
            "seconds": round(self.seconds, 3),
            "decisions_per_second": round(self.rate, 1),
            "latency_us": {"p50": round(p50, 1), "p99": round(p99, 1)},
            "fallbacks": list(self.fallbacks),
            "total": asdict(self.total),
            "libraries": {name: asdict(sums) for name, sums in self.libraries.items()},
        }
