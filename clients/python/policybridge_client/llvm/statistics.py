"""What a compilation came to: counted while it runs, reported when it is over."""

import os
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyVersion

FAILED: Final = os.EX_SOFTWARE
"""Exit status where the host ended a compiler that it had no advice for."""


@dataclass
class Statistics:
    """Counts of one compilation, over all sessions that it took.

    Attributes:
        choices: whether the advice is one of a few integers.
        policy: the version that answered.
        headers: how often LLVM began to ask: once for each source.
        advice: how often each was given, by its bytes; empty where it is no choice.
        latencies: nanoseconds from an observation's last byte to its reply, the opening of a session not counted.
        defaults: decisions answered with LLVM's own default after a failure; not among ``decisions``.

    """

    choices: bool = True
    policy: PolicyVersion | None = None
    sessions: list[str] = field(default_factory=list)
    headers: int = 0
    decisions: int = 0
    advice: Counter[bytes] = field(default_factory=Counter)
    latencies: "array[int]" = field(default_factory=lambda: array("q"))
    defaults: int = 0
    failure: PolicyBridgeError | None = None

    def count(self, advice: bytes, nanoseconds: int) -> None:
        """Count one decision of the policy."""
        self.decisions += 1
        if self.choices:
            self.advice[advice] += 1
        self.latencies.append(nanoseconds)


@dataclass(frozen=True)
class Fallback:
    """Why and how the compilation went on without the policy.

    Attributes:
        reason: the failure's message.
        status: its gRPC status.
        decisions: how many LLVM's own default answered.
        restarted: whether the compiler was ended and run once more without asking; what was counted before belongs to
            the run that was ended, and decided nothing.

    """

    reason: str
    status: int
    decisions: int = 0
    restarted: bool = False


@dataclass(frozen=True)
class Report:
    """The end of one compilation.

    Attributes:
        status: the compiler's exit status, 128 + n where signal n ended it; `FAILED` where the host ended it because
            there was no advice and no fallback.
        seconds: wall time.
        error: what went wrong where ``status`` is `FAILED` by the host.
        fallback: set where the policy did not decide everything.

    """

    command: Sequence[str]
    task: str
    status: int
    seconds: float
    statistics: Statistics
    fallback: Fallback | None = None
    error: PolicyBridgeError | None = None

    @property
    def session_ids(self) -> Sequence[str]:
        """The sessions that it took, for `Connection.report_outcome`."""
        return self.statistics.sessions

    def raise_error(self) -> None:
        """Raise ``error``, if there is one."""
        if self.error is not None:
            raise self.error

    def to_json(self) -> Mapping[str, object]:
        """Give what the statistics file holds; latencies in microseconds."""
        counted = self.statistics
        return {
            "policy": asdict(counted.policy) if counted.policy else None,
            "task": self.task,
            "sessions": counted.sessions,
            "decisions": counted.decisions,
            "advice": _choices(counted.advice),
            "latency_us": _latencies(counted.latencies),
            "fallback": asdict(self.fallback) if self.fallback else None,
            "error": _error(self.error),
            "status": self.status,
            "seconds": round(self.seconds, 6),
            "command": list(self.command),
        }


def _latencies(nanoseconds: Sequence[int]) -> Mapping[str, float] | None:
    if not nanoseconds:
        return None
    p50, p99 = np.percentile(np.array(nanoseconds), [50, 99]) / 1000
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1)}


def _choices(advice: Mapping[bytes, int]) -> Mapping[str, int]:
    chosen = {int.from_bytes(raw, "little", signed=True): count for raw, count in advice.items()}
    return {str(choice): chosen[choice] for choice in sorted(chosen)}


def _error(error: PolicyBridgeError | None) -> Mapping[str, object] | None:
    return {"reason": str(error), "status": int(error.status)} if error else None


def write_report(report: Report, path: str) -> Path:
    """Write the statistics file at once, never a part of it; ``%p`` in its name becomes this process's id."""
    target = Path(path.replace("%p", str(os.getpid())))
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(report.to_json())) + b"\n")
    return partial.replace(target)
