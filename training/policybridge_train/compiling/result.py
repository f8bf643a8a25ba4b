"""The result of a compile."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from policybridge_client.decisions import Level, SiteLog
from policybridge_client.decisions.sites import Numbers
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.processes.process import Ended, Status

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


class CompileResult(Ended, frozen=True):
    """A compile that has ended. All sizes are bytes. If its status is not ``OK``, there are no costs and no totals.

    Attributes:
        costs: the first objective's cost by unit, such as a function; smaller is better. Empty if nobody wanted it.
        sessions: the ids of the compile's sessions in the ledger.
        totals: the whole module's cost by objective.
        sections: the size of each loaded section, by name.
        digest: SHA-256 of the object, in hex.
        log: the decisions about calls, if the decider keeps a log.
        content: the object, if somebody wanted it.
        cached: whether an earlier run compiled it.

    """

    costs: Mapping[str, float] = {}
    sessions: Sequence[str] = ()
    totals: Mapping[str, float] = {}
    sections: Mapping[str, int] = {}
    digest: str = ""
    log: DecisionLog | None = None
    content: bytes = b""
    cached: bool = False

    @classmethod
    def failed(cls, message: str) -> "CompileResult":
        """Give the result of a compile that failed."""
        return cls(status=Status.FAILED, message=message)

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
        if self.status is not Status.OK:
            raise CompileError(f"{module}: {self.failure}")
        return self


def as_utf8(name: str) -> str:
    """Give a name with other bytes than UTF-8 spelt out, so that it can be written down as UTF-8."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def keyed_by_utf8(values: Mapping[str, T]) -> Mapping[str, T]:
    """Give values whose keys are names in UTF-8; see `as_utf8`."""
    return {as_utf8(name): value for name, value in values.items()}
