"""The search for one module's decisions: many moves in each compile, each with its own credit.

A move turns decisions about inlining or about a function's passes. Its credit is the size of the functions that it can
change, so moves that change different functions share one compile. The next round starts from the accepted moves,
without a compile to check in between: the sizes after them are known, because the other moves changed other functions.
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from policybridge_client.decisions import Level
from policybridge_core.errors import InvalidError
from policybridge_train.compiling.job import Wanted
from policybridge_train.compiling.result import CompileResult, Site, keyed_by_utf8
from policybridge_train.tuning.flips import MODULE, Decided

_T = TypeVar("_T")

TUNED: Final = Wanted(("text", "exec"), units=keyed_by_utf8)
"""Of each compile of a search."""


class Accepted(msgspec.Struct, array_like=True):
    """A move that was accepted, with the functions that it changed."""

    turned: Decided
    functions: list[str]


class Tried(msgspec.Struct, array_like=True):
    """A move's credit, and its surroundings (`policybridge_train.tuning.flips.Flip.surroundings`).

    It is not tried again in the same.
    """

    surroundings: int
    credit: float


class Search(msgspec.Struct):
    """The state of a module's search. It can be written and read again at any moment.

    Attributes:
        level: of the module's functions.
        digest: of the module as LLVM's pipeline starts.
        default_text: bytes of text under LLVM's own decisions.
        default_exec: bytes of code under these.
        best_text: the smallest text that was measured.
        best_exec: the bytes of code with it.
        best: the decisions of that compile that differ from LLVM's own.
        best_object: SHA-256 of that compile's object.
        decided: the decisions that are accepted.
        sizes: bytes of each function under these, with its part of the unwind and exception tables.
        sites: the calls under these, by caller.
        checked_sizes: bytes of each function when the accepted decisions were last compiled alone.
        accepted: the moves that were accepted since then.
        tried: the credit of tried moves, by name.
        names: caller and callee of the sites in `best`, for people.
        spent: compiles.
        checked_at: how many were spent when the accepted decisions were last compiled alone.
        idle: rounds in a row without a gain.
        closed: whether nothing is left to try.
        whole: moves of the whole module that are not tried yet; each has a compile by itself.
        start: decisions of a store or a policy, until they have been compiled.
        started: whether there were any.
        default_object: SHA-256 of the default's object.
        weak: functions of the default of which a linker keeps one copy, where several objects have them.
        shared: how many modules of a program have each of these functions by default; ``None`` until it is known. A
            function counts for its size divided by that number: the program loses it only if all of them do.
        best_cost: `best_text`, with the sizes of shared functions divided.
        refused: the object with which a program became larger than the default's; it is not in the store.

    """

    level: Level
    digest: str
    default_text: int
    default_exec: int
    best_text: int
    best_exec: int
    best_object: str
    sizes: dict[str, int]
    sites: dict[str, list[Site]]
    checked_sizes: dict[str, int]
    best: Decided = Decided()
    decided: Decided = Decided()
    accepted: list[Accepted] = msgspec.field(default_factory=list)
    tried: dict[str, Tried] = msgspec.field(default_factory=dict)
    names: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    spent: int = 1
    checked_at: int = 1
    idle: int = 0
    closed: bool = False
    whole: list[Decided] = msgspec.field(default_factory=list)
    start: Decided | None = None
    started: bool = False
    default_object: str = ""
    weak: tuple[str, ...] = ()
    shared: dict[str, int] | None = None
    best_cost: float | None = None
    refused: str = ""

    @classmethod
    def begin(cls, default: CompileResult) -> "Search":
        """Begin with LLVM's own decisions.

        Raises:
            InvalidError: the compile has no log.

        """
        if default.log is None:
            raise InvalidError("a search needs the log of a compile's decisions")
        sizes = default.sizes
        return cls(
            level=default.log.level,
            digest=default.log.digest,
            default_text=default.text,
            default_exec=default.exec,
            best_text=default.text,
            best_exec=default.exec,
            best_object=default.digest,
            sizes=sizes,
            sites=_by_caller(default.sites),
            checked_sizes=sizes,
            default_object=default.digest,
            weak=default.log.weak,
        )

    def share(self, shared: Mapping[str, int]) -> None:
        """Learn how many modules have functions; before anything is compiled but the default."""
        self.shared = dict(shared)
        self.best_cost = self._whole(self.best_text, self.sizes)

    def _whole(self, text: int, sizes: Mapping[str, float]) -> float:
        """Give the bytes of a text with these functions, with the sizes of shared functions divided."""
        shared = self.shared or {}
        return text - sum(sizes[name] * (1 - 1 / shared[name]) for name in shared if name in sizes)

    def matching(self, patterns: Sequence[str]) -> set[str]:
        """Give the functions whose names match one of the patterns."""
        return {name for name in self.sizes if any(fnmatchcase(name, pattern) for pattern in patterns)}

    @property
    def shipped(self) -> Decided:
        """The store's decisions: the best, if they are not refused."""
        return Decided() if self.is_refused else self.best

    @property
    def is_refused(self) -> bool:
        """Whether a program became larger with the best."""
        return self.refused == self.best_object

    def note(self, measured: CompileResult, passes: Mapping[str, Sequence[str]] | None = None) -> bool:
        """Count a compile, and keep its decisions if it is the smallest so far; tell whether it is.

        Of two compiles of the same size the one with fewer decisions counts: a trial has some that change nothing.
        """
        self.spent += 1
        text, code = (int(measured.totals[name]) for name in TUNED.objectives)
        cost = self._whole(text, measured.costs)
        best = self.best_text if self.best_cost is None else self.best_cost
        there = {name: its for name, its in (passes or {}).items() if name == MODULE or name in measured.costs}
        decided, size, before = Decided(measured.deviations(), there), (cost, code), (best, self.best_exec)
        smaller = size < before or (size == before and decided.count < self.best.count)
        # Without decisions there is nothing to store, and so nothing that makes the object again.
        if not smaller or not (decided.inlining or decided.passes):
            return False
        self.best_text, self.best_exec, self.best_cost = text, code, cost
        self.best, self.best_object = decided, measured.digest
        turned = decided.inlining
        self.names = {site.key: (site.caller, site.callee) for site in measured.sites if site.key in turned}
        return True

    def take(self, decided: Decided, measured: CompileResult) -> None:
        """Go on from a compile with these decisions alone, but for regions that they have made larger."""
        self.note(measured, decided.passes)
        self.go_on(decided, measured)

    def go_on(self, decided: Decided, measured: CompileResult, given_up: Collection[str] = ()) -> None:
        """Go on from a compile that was noted; see `take`. Regions with functions that are given up are taken back."""
        self.decided = decided
        self.sizes = measured.sizes
        self.sites = _by_caller(measured.sites)
        dropped = self._give_up_regions(frozenset(given_up))
        self.accepted = []
        self.checked_sizes = self.sizes
        # After some flips were dropped, the rest has not been compiled alone.
        self.checked_at = 0 if dropped else self.spent

    def pinned(self) -> Decided:
        """Give the decisions to compile with: the accepted ones, and the previous ones about all other calls.

        LLVM's own decisions depend on the sizes of the functions. So a flip would change decisions that it has nothing
        to do with, and flips that each help would not help together: of 8.6 KB in sum, 0.7 KB were left.
        """
        inlining = {site.key: site.taken for sites in self.sites.values() for site in sites}
        return Decided({**inlining, **self.decided.inlining}, self.decided.passes)

    @property
    def is_checked(self) -> bool:
        """Whether the accepted decisions were compiled alone."""
        return not self.accepted and self.checked_at > 0

    @property
    def regions(self) -> list[set[str]]:
        """The functions of each region of accepted moves."""
        return [{name for move in region for name in move.functions} for region in _regions(self.accepted)]

    def _give_up_regions(self, given_up: frozenset[str]) -> bool:
        """Take back the accepted moves of regions that became larger or are given up; whether there were any.

        Moves whose functions overlap are one region: their joint credit can differ from the sum.
        """
        dropped: list[Accepted] = []
        for region in _regions(self.accepted):
            names = {name for move in region for name in move.functions}
            if names & given_up or self.cost(self.sizes, names) > self.cost(self.checked_sizes, names):
                dropped += region
                self.sizes = _joined(self.checked_sizes, self.sizes, names)
        # Leaving sites out is not enough: `sites` has them as they were turned. Of a site that was turned twice, the
        # first move has the original decision.
        ids = {*map(id, dropped)}
        for move in reversed(self.accepted):
            if id(move) in ids:
                self.decided = self.decided.turned(move.turned.back)
        return bool(dropped)

    def accept(self, move: Accepted) -> None:
        """Decide so from now on."""
        self.decided = self.decided.turned(move.turned)
        self.accepted.append(move)

    def update(self, measured: CompileResult, functions: Collection[str]) -> None:
        """Take a compile's sizes and sites of these functions alone."""
        self.sizes = _joined(measured.sizes, self.sizes, functions)
        self.sites = _joined(_by_caller(measured.sites), self.sites, functions)

    def credit(self, functions: Collection[str], before: Mapping[str, float], after: Mapping[str, float]) -> float:
        """Give the change of the bytes of these functions; below zero is smaller."""
        return self.cost(after, functions) - self.cost(before, functions)

    def cost(self, sizes: Mapping[str, float], functions: Collection[str]) -> float:
        """Give the bytes of these functions, with the sizes of shared functions divided."""
        shared = self.shared or {}
        return sum(sizes[name] / shared.get(name, 1) for name in functions if name in sizes)


def _regions(accepted: Sequence[Accepted]) -> list[list[Accepted]]:
    regions: list[tuple[set[str], list[Accepted]]] = []
    for move in accepted:
        names, members = set(move.functions), [move]
        apart = []
        for region in regions:
            if region[0] & names:
                names |= region[0]
                members += region[1]
            else:
                apart.append(region)
        regions = [*apart, (names, members)]
    return [members for _, members in regions]


def _by_caller(sites: Sequence[Site]) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = {}
    for site in sites:
        found.setdefault(site.caller, []).append(site)
    return found


def _joined(new: Mapping[str, _T], old: Mapping[str, _T], functions: Collection[str]) -> dict[str, _T]:
    joined = {name: value for name, value in old.items() if name not in functions}
    # In the order of the compile: that of a set differs from one process to the next, and so would the search.
    joined.update((name, value) for name, value in new.items() if name in functions)
    return joined
