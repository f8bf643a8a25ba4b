"""Choices of passes as moves of a search, and the gain that is expected of each.

The effect of a choice on a function does not depend on the choices for other functions (``docs/passes.md``). So each
function tries a choice of its own in each compile in which no flip touches it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from policybridge_client.decisions.passes import ALTERNATIVES, CODEGEN_PASSES
from policybridge_train.tuning.flips import MODULE, CallGraph, Decided
from policybridge_train.tuning.search import Search

OUTLINER: Final = Decided(passes={MODULE: ["add iroutliner@last"]})
"""LLVM's outliner: a choice of the module, because the size that it gives a function depends on the other functions."""

_AND: Final = " & "
_TIGHT: Final = _AND.join(ALTERNATIVES["tight"])
_SIZE: Final = _AND.join(ALTERNATIVES["size"])

_LISTED: Final[Mapping[str, float]] = {
    _TIGHT: 0.0300,
    _SIZE: 0.0150,
    "skip machine-cse": 0.0086,
    "add early-cse<memssa>@last & add newgvn@early & add separate-const-offset-from-gep@last & "
    "skip shrink-wrap & skip x86-execution-domain-fix": 0.0050,
    "set basic-regalloc": 0.0059,
    "set spare-callee-saved": 0.0048,
    "skip codegenprepare": 0.0060,
    "skip x86-isel": 0.0060,
    "set aggressive-cse": 0.0030,
    "set no-edge-splits": 0.0030,
    "skip machine-sink": 0.0033,
    "add reg2mem,sroa,instcombine,simplifycfg@last": 0.0020,
    "add newgvn@early": 0.0020,
    "set ext-tsp": 0.0015,
    "set ilp-schedule": 0.0013,
    "set no-cmov": 0.0012,
    "skip twoaddressinstruction": 0.0012,
    "set hoist-geps": 0.0011,
    "skip shrink-wrap": 0.0011,
    "skip postra-machine-sink": 0.0011,
    "add sink@last": 0.0011,
    "add lower-switch,simplifycfg@last": 0.0010,
    "skip early-machinelicm": 0.0010,
    "skip loop-reduce": 0.0010,
    "skip machine-cp": 0.0009,
    "add separate-const-offset-from-gep@last": 0.0008,
    "add mergereturn,simplifycfg@last & skip InstCombinePass & skip LoopRotatePass & "
    "skip LoopUnrollPass & skip SLPVectorizerPass & skip x86-cmov-conversion": 0.0008,
    "skip machine-scheduler": 0.0006,
    "set list-burr": 0.0006,
    "add gvn-hoist@early": 0.0006,
    "skip block-placement": 0.0006,
    "skip x86-fixup-leas": 0.0006,
    "set reverse-assignment": 0.0005,
    "set no-small-tables": 0.0005,
    "add gvn@last": 0.0004,
    "skip x86-cf-opt": 0.0004,
    "add aggressive-instcombine@early & add instcombine@last & add nary-reassociate@last & "
    "add memcpyopt@last & add slsr@last": 0.0004,
    "add constraint-elimination@early & skip consthoist & skip expand-memcmp & skip tailduplication": 0.0004,
    "skip x86-optimize-leas": 0.0003,
    "skip branch-folder": 0.0003,
    "skip SimplifyCFGPass": 0.0003,
    "set split-conditions": 0.0003,
    "add adce@last & add bdce@last & add dse@last & "
    "add jump-threading@early & add mldst-motion@early & add reassociate@early & add sccp@early": 0.0003,
    "skip early-tailduplication & skip machine-latecleanup & skip opt-phis & "
    "skip stack-slot-coloring & skip x86-avoid-sfb & skip lrshrink": 0.0003,
    "add loop(indvars)@last & add loop-mssa(licm)@last & "
    "add simplifycfg<switch-to-lookup>@last & add tailcallelim@last": 0.0003,
    "add loop(loop-reduce)@last": 0.0003,
    "set split-for-size": 0.0002,
    "skip InstCombinePass": 0.0002,
    "skip LICMPass": 0.0002,
    "add simplifycfg<hoist-common-insts;sink-common-insts>@last": 0.0001,
    "skip SROAPass": 0.0001,
    "skip peephole-opt": 0.0001,
}
"""Choices to try, and the share of a function's bytes that each saved in earlier searches.

Those with ``&`` between are tried together first: the choices that make most functions smaller, and choices that change
few functions. Where they change nothing together, none of them is tried alone in that function as it is.
"""

_ALONE: Final = 0.0002
"""The share assumed for a choice that is listed only as a part of a group."""

_BACK: Final = 0.0004
"""The share assumed for a choice that is taken back."""


def _groups() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for words in _LISTED:
        for each in words.split(_AND) if _AND in words else ():
            found.setdefault(each, []).append(words)
    return found


_GROUPS_OF: Final = _groups()
PRIOR: Final[Mapping[str, float]] = {**_LISTED, **{each: _ALONE for each in _GROUPS_OF if each not in _LISTED}}
"""All choices that are tried, together and alone."""

_PRIOR_BYTES: Final = 20_000
"""The prior weighs as much as trials on functions of this many bytes."""

_AGAIN: Final = 0.1
"""The part of the gain that is expected of a choice that did not help the function as it was."""


@dataclass(frozen=True)
class Choice:
    """A choice for one function, which is made, or taken back where it is made.

    Attributes:
        function: whose passes it is about.
        words: the action and the name; of several choices with ``&`` between.
        affected: the function, as a set (`CallGraph`).
        back: whether it is taken back.

    """

    function: str
    words: str
    affected: int
    back: bool = False
    read: int = 0

    @property
    def turned(self) -> Decided:
        """The choice, by function."""
        return Decided(passes={self.function: self.words.split(_AND)})

    @property
    def name(self) -> str:
        """What tells it from the other moves of its module."""
        return f"{self.words} {self.function}"

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """Give a number that changes, most often, where the function has changed."""
        return sizes.get(self.function, 0)


class Part(NamedTuple):
    """The part of a function's bytes that a choice saves on average; or that taking it back saves."""

    words: str
    back: bool
    saved: float


class Gains:
    """The gain that is expected of choices, learnt from those tried in all modules. Usable from any thread.

    Args:
        late: whether only choices about code generation have an effect, as in full LTO.
        prior: the choices, and the share that each is assumed to save before any was tried; see `PRIOR`.

    """

    def __init__(self, *, late: bool = False, prior: Mapping[str, float] = PRIOR) -> None:
        self.late = late
        self._lock = Lock()
        self._gained = {(words, back): (_BACK if back else part) * _PRIOR_BYTES for words, part, back in _moves(prior)}
        self._bytes = dict.fromkeys(self._gained, float(_PRIOR_BYTES))

    def effective(self, passes: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Leave out the choices without an effect: those before code generation, if `late`."""
        if not self.late:
            return passes
        kept = {function: [*filter(is_codegen, its)] for function, its in passes.items()}
        return {function: its for function, its in kept.items() if its}

    def add(self, choice: Choice, size: float, credit: float) -> None:
        """Learn from a tried choice."""
        with self._lock:
            self._gained[choice.words, choice.back] += max(0.0, -credit)
            self._bytes[choice.words, choice.back] += size

    def parts(self) -> list[Part]:
        """Give each choice with the part of a function's bytes that it saves on average, the greatest part first."""
        with self._lock:
            found = [Part(*move, gained / self._bytes[move]) for move, gained in self._gained.items()]
        return sorted(found, key=lambda each: -each.saved)

    def best(self, search: Search, graph: CallGraph, without: Collection[str]) -> list[tuple[float, Choice]]:
        """Give the choice that each function tries next, with the bytes that it is expected to save.

        Args:
            search: of the module; it has the moves that were tried.
            graph: of the module.
            without: the names of moves that are under way.

        """
        late = self.late or MODULE in search.decided.passes
        # After the outliner, which is the last of LLVM's passes, only code generation works on one function at a time.
        parts = [each for each in self.parts() if not late or is_codegen(each.words)]
        found = []
        for (function, size), alone in zip(search.sizes.items(), graph.each_of(search.sizes), strict=True):
            best = max(_untried(search, function, parts, without), default=None)
            if best is not None:
                found.append((best[0] * size, Choice(function, best[1], alone, best[2])))
        return found


def is_codegen(words: str) -> bool:
    """Tell whether a choice is about code generation."""
    pairs = [each.split(" ", 1) for each in words.split(_AND)]
    return all(action == "set" or (action == "skip" and name in CODEGEN_PASSES) for action, name in pairs)


def _moves(prior: Mapping[str, float]) -> Iterator[tuple[str, float, bool]]:
    """Give what can be chosen, with the share of its prior; and what can be taken back: each choice alone."""
    for words, part in prior.items():
        yield words, part, False
        if _AND not in words:
            yield words, part, True


def _untried(
    search: Search, function: str, parts: list[Part], without: Collection[str]
) -> Iterator[tuple[float, str, bool]]:
    """Give the choices that the function has not tried as it is, up to the first that it never tried."""
    chosen, size = search.decided.passes.get(function, ()), search.sizes[function]
    for words, back, part in parts:
        if back != (words in chosen) or (_AND in words and any(each in chosen for each in words.split(_AND))):
            continue
        name = f"{words} {function}"
        tried = search.tried.get(name)
        if name in without or (tried is not None and tried.surroundings == size):
            continue
        groups = (search.tried.get(f"{group} {function}") for group in _GROUPS_OF.get(words, ()))
        if any(group is not None and group.surroundings == size and not group.credit for group in groups):
            continue
        if tried is None:
            yield part, words, back
            return
        if abs(tried.credit) > 0:
            # It changed the function: as the function is now, it may help, or help no more.
            yield part * _AGAIN, words, back
