"""Decisions as lines of LLVM's replay (llvm/lib/Analysis/ReplayInlineAdvisor.cpp), for compilers that load no plugin.

LLVM finds a call by its callee's name and by where it stands: line and column within each function that it came
through. So two calls of one function at one place, as macros, destructors and templates make them, can only be decided
alike; unless -fdebug-info-for-profiling gives them discriminators, and the functions their whole names. A call that
LLVM asks about several times gets the same answer each time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from policybridge_client.decisions import SiteLog
from policybridge_client.decisions.text import to_bytes

FLAGS: Final = (
    "-cgscc-inline-replay-scope=Function",
    "-cgscc-inline-replay-fallback=Original",
    "-cgscc-inline-replay-format=LineColumnDiscriminator",
)
"""LLVM's flags beside ``-cgscc-inline-replay=FILE``: calls that the file does not name are decided as without it."""

_WORDS: Final = {True: "inlined into", False: "will not be inlined into"}
_MARKS: Final = ("'", ";", "\n", "\r", " at callsite ")
"""What LLVM splits a line at."""


@dataclass(frozen=True)
class Unsaid:
    """A decision that the replay cannot say, and why."""

    caller: str
    callee: str
    location: str
    why: str

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location else ""
        return f"{self.callee or 'a call through a pointer'} in {self.caller}{where}: {self.why}"


@dataclass
class Replay:
    """What LLVM's replay can say about a compilation.

    Attributes:
        lines: of the file, without their ends.
        said: the number of decisions, different from LLVM's own, that the lines say.
        unsaid: those that they do not.

    """

    lines: list[str] = field(default_factory=list)
    said: int = 0
    unsaid: list[Unsaid] = field(default_factory=list)

    @property
    def text(self) -> bytes:
        """The content of the file."""
        return b"".join(to_bytes(line) + b"\n" for line in self.lines)


def replay_of(log: SiteLog) -> Replay:
    """Give the replay of a compilation's decisions, by the log of its sites. It needs line tables (``-g1``)."""
    replay = Replay()
    for (callee, location), calls in _by_place(log).items():
        different = [call for call in calls if log.default[call] != log.taken[call]]
        if not different:
            continue
        callers = list(dict.fromkeys(log.caller[call] for call in different))
        why = _obstacle(log, callee, location, callers, calls)
        if why:
            replay.unsaid += [Unsaid(log.caller[call], callee, location, why) for call in different]
            continue
        taken = bool(log.taken[different[0]])
        replay.lines += [_line(callee, caller, location, inline=taken) for caller in callers]
        replay.said += len(different)
    return replay


def _by_place(log: SiteLog) -> Mapping[tuple[str, str], list[int]]:
    places: dict[tuple[str, str], list[int]] = {}
    for call, place in enumerate(zip(log.callee, log.location, strict=True)):
        places.setdefault(place, []).append(call)
    return places


def _obstacle(log: SiteLog, callee: str, location: str, callers: list[str], calls: list[int]) -> str:
    if not location:
        return "it has no location; compile with line tables (-gline-tables-only)"
    if not callee:
        return "its callee was not known when the module was numbered"
    if any(mark in name for mark in _MARKS for name in (callee, location, *callers)):
        return "LLVM cannot read such a name in a replay"
    if len({bool(log.taken[call]) for call in calls}) == 1:
        return ""
    if len({(log.caller[call], log.origin[call], log.numbers["number"][call]) for call in calls}) == 1:
        return f"LLVM asks {len(calls)} times about this call, and is answered differently"
    return f"{len(calls)} calls at this place are decided differently; -fdebug-info-for-profiling can tell them apart"


def _line(callee: str, caller: str, location: str, *, inline: bool) -> str:
    return f"policybridge: '{callee}' {_WORDS[inline]} '{caller}' at callsite {location};"


def flags_for(file: str) -> Iterator[str]:
    """Give LLVM's flags that replay a file."""
    yield f"-cgscc-inline-replay={file}"
    yield from FLAGS
