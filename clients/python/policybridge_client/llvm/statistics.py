"""The statistics of a compilation: counted while it runs, reported at its end."""

import os
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from policybridge_client.spool import Spool, SpoolCounts
from policybridge_core.errors import PolicyBridgeError
from policybridge_core.json_text import json_text
from policybridge_serdes import PolicyVersion

FAILED: Final = os.EX_SOFTWARE
"""Exit status if the host ended the compiler for want of advice."""


@dataclass
class CompilationStatistics:
    """Counts of one compilation, over all its sessions.

    Attributes:
        choices: whether the advice is one of a few integers.
        policy: the version that gave the advice.
        headers: the number of headers that LLVM sent, one for each source.
        advice: how often each advice was given, by its bytes; empty if the advice is not one of a few integers.
        latencies: nanoseconds from an observation's last byte to its reply, without the time to open a session.
        defaults: decisions answered with LLVM's own default after a failure; not counted in ``decisions``.
        not_asked: kinds of decisions that the policy declares and LLVM does not ask for in the interactive mode.
        spool: counts the records that were kept for a later compilation, and those of earlier ones that were sent.
        limited: decisions beyond the growth limit, answered with LLVM's own default; not counted in ``decisions``.

    """

    choices: bool = True
    policy: PolicyVersion | None = None
    sessions: list[str] = field(default_factory=list)
    headers: int = 0
    decisions: int = 0
    advice: Counter[bytes] = field(default_factory=Counter)
    latencies: "array[int]" = field(default_factory=lambda: array("q"))
    defaults: int = 0
    limited: int = 0
    not_asked: Sequence[str] = ()
    spool: Spool = field(default_factory=Spool)
    failure: PolicyBridgeError | None = None

    def count(self, advice: bytes, nanoseconds: int) -> None:
        """Count one decision of the policy."""
        self.decisions += 1
        if self.choices:
            self.advice[advice] += 1
        self.latencies.append(nanoseconds)


@dataclass(frozen=True)
class Fallback:
    """Why and how the compilation continued without the policy.

    Attributes:
        reason: the message of the failure.
        status: the gRPC status of the failure.
        decisions: the number of decisions answered with LLVM's own default.
        restarted: whether the compiler was ended and run again without the policy. The counts then belong to the run
            that was ended, and had no effect on the object.

    """

    reason: str
    status: int
    decisions: int = 0
    restarted: bool = False


@dataclass(frozen=True)
class Applied:
    """The part of a store that applied to a compilation.

    Attributes:
        path: the store's.
        module: the source.
        exact: whether the module equals the tuned one by its digest; false in the interactive mode.
        applied: the number of decisions that applied.
        unmatched: the number of the section's decisions that the compiler did not ask for.
        passes: of those that applied, how many are about a function's passes.

    """

    path: str
    module: str
    exact: bool
    applied: int
    unmatched: int
    passes: int = 0


@dataclass(frozen=True)
class Report:
    """The result of one compilation.

    Attributes:
        command: the compiler's command.
        task: the task of its requests.
        status: the compiler's exit status, or 128 + n if signal n ended it, or `FAILED` if the host ended it because
            there was neither advice nor a fallback.
        seconds: wall time.
        statistics: counts of requests and answers.
        error: the reason if the host ended the compiler.
        fallback: set if the policy did not make all decisions.
        late: whether the compiler was ended at its time limit.
        cpu_seconds: the compiler's processor time.
        store: the part of a store of decisions that applied; ``None`` if no section fits the compilation.
        note: one line for people about the store; empty if all decisions applied.

    """

    command: Sequence[str]
    task: str
    status: int
    seconds: float
    statistics: CompilationStatistics
    fallback: Fallback | None = None
    error: PolicyBridgeError | None = None
    late: bool = False
    cpu_seconds: float = 0.0
    store: Applied | None = None
    note: str = ""

    @property
    def session_ids(self) -> Sequence[str]:
        """The ids of the sessions, for `Connection.report_outcome`."""
        return self.statistics.sessions

    def raise_error(self) -> None:
        """Raise ``error``, if there is one."""
        if self.error is not None:
            raise self.error

    def to_json(self) -> Mapping[str, object]:
        """Return the content of the statistics file; latencies are in microseconds."""
        counted = self.statistics
        return {
            "policy": asdict(counted.policy) if counted.policy else None,
            "task": self.task,
            "sessions": counted.sessions,
            "decisions": counted.decisions,
            "advice": _choices(counted.advice),
            "limited": counted.limited,
            **({"not_asked": list(counted.not_asked)} if counted.not_asked else {}),
            **({"records": asdict(counted.spool.counts)} if counted.spool.counts != SpoolCounts() else {}),
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


def write_report(report: Mapping[str, object], path: str) -> Path:
    """Write the statistics file atomically; ``%p`` in its name becomes the id of this process.

    A device, a pipe or a link (``/dev/stderr``) is written to and not replaced.
    """
    target = Path(path.replace("%p", str(os.getpid())))
    text = json_text(report).encode() + b"\n"
    if target.is_symlink() or (target.exists() and not target.is_file()):
        target.write_bytes(text)
        return target
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(text)
    return partial.replace(target)
