"""The result of a compile."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeVar

import msgspec

from policybridge_client.decisions import Level, SiteLog
from policybridge_client.decisions.sites import Numbers
from policybridge_core.errors import PolicyBridgeError

T = TypeVar("T")

NUMBERS: Final = (
    "callee_local",
    "callee_uses",
    "cost",
    "threshold",
    "caller_instructions",
    "callee_instructions",
    "callee_blocks",
    "constant_arguments",
    "arguments",
    "loop_depth",
)
"""A site's features beside its names, in the order of `Site.numbers`."""


class Status(Enum):
    """How a compile ended; ``SKIPPED``: it was not begun."""

    OK = "ok"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"


class CompileError(PolicyBridgeError):
    """The compiler failed, crashed, or reached a limit."""


class Site(msgspec.Struct, frozen=True, array_like=True):
    """A call about which the compiler asked, as the log of sites has it (`policybridge_client.decisions.SiteLog`)."""

    key: str
    caller: str
    callee: str
    default: bool
    taken: bool
    inlined: bool
    numbers: tuple[float, ...]


class DecisionLog(msgspec.Struct, frozen=True):
    """The decisions of a compile.

    Attributes:
        sites: in the order in which the compiler asked.
        level: of the module's functions.
        digest: of the module as LLVM's pipeline starts.
        weak: the functions of which a linker keeps one copy if several objects have them.

    """

    sites: list[Site]
    level: Level
    digest: str = ""
    weak: tuple[str, ...] = ()

    @classmethod
    def of(cls, log: SiteLog, numbers: Mapping[str, Numbers], weak: Iterable[str]) -> "DecisionLog":
        """Give the log of a compiler; ``numbers`` has the columns `NUMBERS` of the sites."""
        flags = (log.default.tolist(), log.taken.tolist(), log.inlined.tolist())
        rows = zip(*(numbers[name].tolist() for name in NUMBERS), strict=True)
        names = map(as_utf8, log.caller), map(as_utf8, log.callee)
        sites = list(map(Site, log.keys, *names, *flags, rows))
        return cls(sites, log.level, log.digest or "", tuple(map(as_utf8, weak)))


class CompileResult(msgspec.Struct, frozen=True):
    """A compile that has ended. All sizes are bytes.

    Attributes:
        costs: the first objective's cost by unit, such as a function; smaller is better. Empty if nobody wanted it.
        sessions: the ids of the compile's sessions in the ledger.
        totals: the whole module's cost by objective.
        status: how it ended. If it is not ``OK``, there are no costs and no totals.
        seconds: processor time of the compiler.
        message: why it failed; if it is ``OK``, a remark, mostly empty.
        signal: the signal that ended the compiler; 0 for none.
        sections: the size of each loaded section, by name.
        digest: SHA-256 of the object, in hex.
        log: the decisions about calls, if the decider keeps a log.
        content: the object, if somebody wanted it.
        cached: whether an earlier run compiled it.

    """

    costs: Mapping[str, float] = {}
    sessions: Sequence[str] = ()
    totals: Mapping[str, float] = {}
    status: Status = Status.OK
    seconds: float = 0.0
    message: str = ""
    signal: int = 0
    sections: Mapping[str, int] = {}
    digest: str = ""
    log: DecisionLog | None = None
    content: bytes = b""
    cached: bool = False

    @classmethod
    def failed(cls, message: str) -> "CompileResult":
        """Give the result of a compile that failed."""
        return cls(status=Status.FAILED, message=message)

    @classmethod
    def ended(cls, code: int, seconds: float, words: str, late: float | None = None) -> "CompileResult":
        """Give the result of a compiler process.

        Args:
            code: the exit status; −n, or 128 + n of a shell, if signal n ended the process.
            seconds: of processor time.
            words: the compiler's output.
            late: the limit of wall seconds that the process reached; ``None`` if it ended by itself.

        """
        if late is not None:
            return cls(status=Status.TIMEOUT, seconds=seconds, message=f"it was ended after {late:g} seconds")
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number:
            message = f"signal {number}: {words}".rstrip(": ")
            return cls(status=Status.CRASHED, seconds=seconds, message=message, signal=number)
        if code:
            return cls(status=Status.FAILED, seconds=seconds, message=words or f"status {code}, and no message")
        return cls(seconds=seconds)

    @property
    def ok(self) -> bool:
        """Whether there is an object."""
        return self.status is Status.OK

    @property
    def failure(self) -> str:
        """Why there is no object; empty if there is one."""
        if self.ok:
            return ""
        return self.message if self.status is Status.FAILED else f"{self.status.value}: {self.message}"

    @property
    def text(self) -> int:
        """Bytes of text; 0 if this was no objective."""
        return int(self.totals.get("text", 0))

    @property
    def exec(self) -> int:
        """Bytes of code; 0 if this was no objective."""
        return int(self.totals.get("exec", 0))

    @property
    def sizes(self) -> dict[str, int]:
        """The costs as whole numbers, such as bytes."""
        return {name: int(cost) for name, cost in self.costs.items()}

    @property
    def sites(self) -> list[Site]:
        """The sites of the log; none without one."""
        return self.log.sites if self.log else []

    def deviations(self) -> dict[str, bool]:
        """Give the decisions that differ from LLVM's own: a compile with these alone makes the same object."""
        return {site.key: site.taken for site in self.sites if site.taken != site.default}

    def checked(self, module: str) -> "CompileResult":
        """Give this result.

        Raises:
            CompileError: it failed; the message names the module.

        """
        if not self.ok:
            raise CompileError(f"{module}: {self.failure}")
        return self


def as_utf8(name: str) -> str:
    """Give a name with other bytes than UTF-8 spelt out, so that it can be written down as UTF-8."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def keyed_by_utf8(values: Mapping[str, T]) -> Mapping[str, T]:
    """Give values whose keys are names in UTF-8; see `as_utf8`."""
    return {as_utf8(name): value for name, value in values.items()}
